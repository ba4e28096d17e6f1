#include "runtime/module_tree.h"

#include <charconv>
#include <map>

namespace blockscale {
namespace {

constexpr std::string_view kWeights[] = {".weight", ".weight_packed"};
constexpr std::string_view kExperts = ".experts.";

// How the runtime's class for a model type differs from the others: where a path in the runtime is
// another than on disk, whether lm_head is given the quantisation config, and whether layers behind
// the last one are passed over.
struct Family {
  std::string_view model_type, on_disk, in_runtime;
  bool lm_head_asks_config, has_mtp;
};
constexpr Family kFamilies[] = {{"minimax_m2", ".block_sparse_moe.", ".mlp.", false, true}};

const Family* FindFamily(std::string_view model_type) {
  for (const Family& family : kFamilies)
    if (family.model_type == model_type) return &family;
  return nullptr;
}

// Modules on disk that the runtime stacks into one.
struct Fusion {
  std::string_view part, fused, class_name;
};
constexpr Fusion kFusions[] = {{"q_proj", "qkv_proj", "QKVParallelLinear"},
                               {"k_proj", "qkv_proj", "QKVParallelLinear"},
                               {"v_proj", "qkv_proj", "QKVParallelLinear"},
                               {"gate_proj", "gate_up_proj", "MergedColumnParallelLinear"},
                               {"up_proj", "gate_up_proj", "MergedColumnParallelLinear"}};

std::string RuntimeName(const Family* family, std::string name) {
  if (family == nullptr) return name;
  const size_t at = name.find(family->on_disk);
  if (at != std::string::npos) name.replace(at, family->on_disk.size(), family->in_runtime);
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
  explicit TreeBuilder(const Checkpoint& checkpoint)
      : checkpoint_(checkpoint), family_(FindFamily(checkpoint.config().model_type)) {}

  std::vector<RuntimeModule> Build() {
    for (const TensorRef& tensor : checkpoint_.tensors()) {
      const std::string& name = tensor.info->name;
      if (tensor.info->shape.size() != 2 || IsPassedOver(checkpoint_.config(), name)) continue;
      for (const std::string_view weight : kWeights)
        if (name.ends_with(weight)) AddMatrix(name.substr(0, name.size() - weight.size()));
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
    const std::string name = RuntimeName(family_, on_disk);
    const std::string last = LastPart(name);
    if (const size_t experts = name.find(kExperts); experts != std::string::npos) {
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
      module.asks_config = false;
    } else if (last.find("embed") != std::string::npos) {
      module.kind = ModuleKind::kEmbedding;
      module.class_name = "VocabParallelEmbedding";
      module.asks_config = false;
    } else if (last == "lm_head") {
      module.kind = ModuleKind::kLmHead;
      module.class_name = "ParallelLMHead";
      module.asks_config = family_ == nullptr || family_->lm_head_asks_config;
    } else {
      module.split_columns = last == "o_proj" || last == "down_proj";
      module.class_name = module.split_columns ? "RowParallelLinear" : "ColumnParallelLinear";
    }
  }

  const Checkpoint& checkpoint_;
  const Family* family_;
  std::map<std::string, RuntimeModule> modules_;
};

}  // namespace

std::optional<ExpertPlace> PlaceOfExpert(const std::string& on_disk) {
  const size_t at = on_disk.find(kExperts);
  if (at == std::string::npos) return std::nullopt;
  const size_t number = at + kExperts.size(), dot = on_disk.find('.', number);
  if (dot == std::string::npos) return std::nullopt;
  ExpertPlace place;
  const auto [end, error] =
      std::from_chars(on_disk.data() + number, on_disk.data() + dot, place.expert);
  if (error != std::errc() || end != on_disk.data() + dot) return std::nullopt;
  const std::string part = on_disk.substr(dot + 1);
  if (part == "w1" || part == "gate_proj") place.part = ExpertPlace::Part::kGate;
  if (part == "w2" || part == "down_proj") place.part = ExpertPlace::Part::kDown;
  if (part == "w3" || part == "up_proj") place.part = ExpertPlace::Part::kUp;
  return place;
}

std::optional<uint64_t> LayerOf(std::string_view name) {
  constexpr std::string_view kLayers = "layers.";
  const size_t at = name.find(kLayers);
  if (at == std::string_view::npos) return std::nullopt;
  uint64_t layer = 0;
  const char* begin = name.data() + at + kLayers.size();
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), layer);
  if (error != std::errc() || end == name.data() + name.size() || *end != '.') return std::nullopt;
  return layer;
}

bool IsPassedOver(const HfConfig& config, std::string_view name) {
  const Family* family = FindFamily(config.model_type);
  if (family == nullptr || !family->has_mtp) return false;
  const auto layer = LayerOf(name), layers = config.Number("num_hidden_layers");
  const uint64_t extra = config.Number("num_mtp_modules").value_or(0);
  return layer && layers && *layer >= *layers && *layer - *layers < extra;
}

std::vector<RuntimeModule> BuildModuleTree(const Checkpoint& checkpoint) {
  return TreeBuilder(checkpoint).Build();
}

}  // namespace blockscale
