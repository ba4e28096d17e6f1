#include "runtime/module_tree.h"

#include <array>
#include <map>
#include <optional>

namespace blockscale {
namespace {

constexpr std::string_view kWeight = ".weight";

// Where a runtime's path differs from the name on disk: one row a model type.
struct Rename {
  std::string_view model_type, on_disk, in_runtime;
};
constexpr Rename kRenames[] = {{"minimax_m2", ".block_sparse_moe.", ".mlp."}};

// Modules on disk that the runtime stacks into one.
struct Fusion {
  std::string_view part, fused, class_name;
};
constexpr Fusion kFusions[] = {{"q_proj", "qkv_proj", "QKVParallelLinear"},
                               {"k_proj", "qkv_proj", "QKVParallelLinear"},
                               {"v_proj", "qkv_proj", "QKVParallelLinear"},
                               {"gate_proj", "gate_up_proj", "MergedColumnParallelLinear"},
                               {"up_proj", "gate_up_proj", "MergedColumnParallelLinear"}};

std::string RuntimeName(const std::string& model_type, std::string name) {
  for (const Rename& rename : kRenames) {
    const size_t at = name.find(rename.on_disk);
    if (rename.model_type == model_type && at != std::string::npos)
      name.replace(at, rename.on_disk.size(), rename.in_runtime);
  }
  return name;
}

std::string LastPart(const std::string& name) { return name.substr(name.rfind('.') + 1); }

// "model.layers.7.self_attn.o_proj" -> "self_attn.o_proj".
std::string GroupOf(const std::string& name) {
  const size_t layers = name.find("layers.");
  if (layers == std::string::npos) return name;
  const size_t dot = name.find('.', layers + 7);
  return dot == std::string::npos ? name : name.substr(dot + 1);
}

class TreeBuilder {
 public:
  explicit TreeBuilder(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  std::vector<RuntimeModule> Build() {
    for (const TensorRef& tensor : checkpoint_.tensors()) {
      const std::string& name = tensor.info->name;
      if (!name.ends_with(kWeight) || tensor.info->shape.size() != 2) continue;
      AddMatrix(name.substr(0, name.size() - kWeight.size()));
    }
    std::vector<RuntimeModule> modules;
    for (auto& [name, module] : modules_) modules.push_back(std::move(module));
    return modules;
  }

 private:
  RuntimeModule& At(const std::string& name) {
    RuntimeModule& module = modules_[name];
    module.name = name;
    module.group = GroupOf(name);
    return module;
  }

  void AddMatrix(const std::string& on_disk) {
    const std::string name = RuntimeName(checkpoint_.config().model_type, on_disk);
    const std::string last = LastPart(name);
    if (const size_t experts = name.find(".experts."); experts != std::string::npos) {
      RuntimeModule& module = At(name.substr(0, experts + 8));
      module.kind = ModuleKind::kExperts;
      module.class_name = "RoutedExperts";
      module.on_disk.push_back(on_disk);
      return;
    }
    for (const Fusion& fusion : kFusions) {
      if (last != fusion.part) continue;
      const std::string parent = name.substr(0, name.size() - last.size());
      RuntimeModule& module = At(parent + std::string(fusion.fused));
      module.class_name = fusion.class_name;
      module.parts.push_back(name);
      module.on_disk.push_back(on_disk);
      return;
    }
    RuntimeModule& module = At(name);
    module.on_disk.push_back(on_disk);
    if (last == "gate") {
      module.kind = ModuleKind::kGate;
      module.class_name = "GateLinear";
    } else if (last.find("embed") != std::string::npos) {
      module.kind = ModuleKind::kEmbedding;
      module.class_name = "VocabParallelEmbedding";
    } else if (last == "lm_head") {
      module.kind = ModuleKind::kLmHead;
      module.class_name = "ParallelLMHead";
    } else {
      module.split_columns = last == "o_proj" || last == "down_proj";
      module.class_name = module.split_columns ? "RowParallelLinear" : "ColumnParallelLinear";
    }
  }

  const Checkpoint& checkpoint_;
  std::map<std::string, RuntimeModule> modules_;
};

}  // namespace

std::vector<RuntimeModule> BuildModuleTree(const Checkpoint& checkpoint) {
  return TreeBuilder(checkpoint).Build();
}

}  // namespace blockscale
