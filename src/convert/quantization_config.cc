#include "convert/quantization_config.h"

#include <algorithm>
#include <map>
#include <set>

#include "blockscale/version.h"
#include "convert/spelling.h"

namespace blockscale {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson Args(int bits, const char* type, const char* strategy) {
  return {{"num_bits", bits}, {"type", type}, {"symmetric", true}, {"strategy", strategy}};
}

OrderedJson With(OrderedJson args, const OrderedJson& more) {
  args.update(more);
  return args;
}

OrderedJson Static(OrderedJson args) { return With(std::move(args), {{"dynamic", false}}); }
OrderedJson Dynamic(OrderedJson args) { return With(std::move(args), {{"dynamic", true}}); }

OrderedJson WeightArgs(const QuantSpec& spec) {
  const OrderedJson group = {{"group_size", spec.block_columns}};
  switch (spec.scheme) {
    case Scheme::kInt8Channel:
      return Static(Args(8, "int", "channel"));
    case Scheme::kFp8Channel:
      return Static(Args(8, "float", "channel"));
    case Scheme::kFp8Tensor:
      return Static(Args(8, "float", "tensor"));
    case Scheme::kFp8Block:
      return With(Static(Args(8, "float", "block")),
                  {{"block_structure", {spec.block_rows, spec.block_columns}}});
    case Scheme::kMxfp8:
      return With(Static(With(Args(8, "float", "group"), group)), {{"scale_dtype", "torch.uint8"}});
    case Scheme::kMxfp4:
      return With(Static(With(Args(4, "float", "group"), group)), {{"scale_dtype", "torch.uint8"}});
    case Scheme::kNvfp4:
      return With(Static(With(Args(4, "float", "tensor_group"), group)),
                  {{"scale_dtype", "torch.float8_e4m3fn"}});
    case Scheme::kInt4Group:
      return Static(With(Args(4, "int", "group"), group));
    case Scheme::kF32:
    case Scheme::kBF16:
    case Scheme::kFP16:
      break;
  }
  return nullptr;
}

// Weights that kernels multiply with activations of the same kind; null: activations stay as they
// are.
OrderedJson ActivationArgs(const QuantSpec& spec) {
  switch (spec.scheme) {
    case Scheme::kInt8Channel:
      return Dynamic(Args(8, "int", "token"));
    case Scheme::kFp8Channel:
    case Scheme::kFp8Tensor:
      return Dynamic(Args(8, "float", "token"));
    case Scheme::kFp8Block:
      return Dynamic(With(Args(8, "float", "group"), {{"group_size", spec.block_columns}}));
    case Scheme::kMxfp8:
      return With(Dynamic(With(Args(8, "float", "group"), {{"group_size", spec.block_columns}})),
                  {{"scale_dtype", "torch.uint8"}});
    default:
      return nullptr;
  }
}

// "model.layers.3.self_attn.q_proj" -> "re:.*\.self_attn\.q_proj$": what tells a module from its
// neighbours, under whatever prefix a runtime knows it.
std::string PatternOf(const std::string& module) {
  const size_t last = module.rfind('.');
  if (last == std::string::npos) return module;
  const size_t before = module.rfind('.', last - 1);
  const std::string parent = before == std::string::npos
                                 ? module.substr(0, last)
                                 : module.substr(before + 1, last - before - 1);
  // vLLM asks for expert 0 as gate_proj, up_proj and down_proj, whatever the checkpoint says.
  if (!parent.empty() && parent.find_first_not_of("0123456789") == std::string::npos)
    return "re:.*\\.experts\\.\\d+\\.(gate_proj|up_proj|down_proj|w1|w2|w3)$";
  return "re:.*\\." + parent + "\\." + module.substr(last + 1) + "$";
}

bool SameGroup(const QuantSpec& a, const QuantSpec& b) {
  return a.scheme == b.scheme && a.block_rows == b.block_rows && a.block_columns == b.block_columns;
}

struct Group {
  QuantSpec spec;
  std::vector<std::string> modules;
};

std::vector<Group> GroupsOf(const ConversionPlan& plan) {
  std::vector<Group> groups;
  for (const QuantisedModule& module : plan.quantised) {
    auto found = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
      return SameGroup(group.spec, module.spec);
    });
    if (found == groups.end()) found = groups.insert(groups.end(), {module.spec, {}});
    found->modules.push_back(module.module);
  }
  return groups;
}

// Targets of each group: patterns, or exact names where a pattern would reach into another group.
std::vector<std::vector<std::string>> TargetsOf(const std::vector<Group>& groups) {
  if (groups.size() == 1) return {{"Linear"}};
  std::map<std::string, std::set<size_t>> reach;
  for (size_t i = 0; i < groups.size(); ++i)
    for (const std::string& module : groups[i].modules) reach[PatternOf(module)].insert(i);
  std::vector<std::vector<std::string>> targets;
  for (const Group& group : groups) {
    std::set<std::string> names;
    for (const std::string& module : group.modules) {
      const std::string pattern = PatternOf(module);
      names.insert(reach.at(pattern).size() == 1 ? pattern : module);
    }
    targets.emplace_back(names.begin(), names.end());
  }
  return targets;
}

OrderedJson CompressedTensorsConfig(const ConversionPlan& plan) {
  const std::vector<Group> groups = GroupsOf(plan);
  const std::vector<std::vector<std::string>> targets = TargetsOf(groups);
  OrderedJson config_groups = OrderedJson::object();
  for (size_t i = 0; i < groups.size(); ++i) {
    OrderedJson group = {{"targets", targets[i]},
                         {"weights", WeightArgs(groups[i].spec)},
                         {"input_activations", ActivationArgs(groups[i].spec)}};
    if (groups.size() > 1) group["format"] = CompressedTensorsFormat(groups[i].spec.scheme);
    config_groups[fmt::format("group_{}", i)] = std::move(group);
  }
  return {{"quant_method", "compressed-tensors"},
          {"format",
           groups.size() == 1 ? CompressedTensorsFormat(groups[0].spec.scheme) : "mixed-precision"},
          {"quantization_status", "compressed"},
          {"global_compression_ratio", nullptr},
          {"config_groups", std::move(config_groups)},
          {"ignore", IgnoreList(plan)}};
}

// lm_head and plain modules, without patterns.
std::vector<std::string> ExactIgnoreList(const ConversionPlan& plan) {
  std::vector<std::string> names = IgnoreList(plan);
  std::erase_if(names, [](const std::string& name) { return name.starts_with("re:"); });
  return names;
}

OrderedJson DeepSeekConfig(const ConversionPlan& plan) {
  const QuantSpec& spec = plan.quantised.front().spec;
  OrderedJson config = {{"activation_scheme", "dynamic"},
                        {"fmt", "e4m3"},
                        {"quant_method", "fp8"},
                        {"weight_block_size", {spec.block_rows, spec.block_columns}},
                        {"modules_to_not_convert", ExactIgnoreList(plan)}};
  if (spec.scale == Format::kE8M0) config["scale_fmt"] = "ue8m0";
  return config;
}

bool HasInputScales(const ConversionPlan& plan) {
  return std::all_of(plan.matrices.begin(), plan.matrices.end(), [](const auto& matrix) {
    return !matrix->encode.spec.has_global() || matrix->input_scale_offset != 0;
  });
}

// Without scales of the activations only the weights are FP4.
const char* ModelOptAlgorithm(const ConversionPlan& plan) {
  return HasInputScales(plan) ? "NVFP4" : "W4A16_NVFP4";
}

OrderedJson Producer() { return {{"name", "blockscale"}, {"version", Version()}}; }

OrderedJson ModelOptQuantization(const ConversionPlan& plan) {
  const OrderedJson weights = {
      {"dynamic", false}, {"num_bits", 4}, {"type", "float"}, {"group_size", 16}};
  OrderedJson group = {{"weights", weights}, {"targets", {"Linear"}}};
  if (HasInputScales(plan)) group["input_activations"] = weights;
  return {{"config_groups", {{"group_0", std::move(group)}}},
          {"ignore", ExactIgnoreList(plan)},
          {"quant_algo", ModelOptAlgorithm(plan)},
          {"producer", Producer()},
          {"quant_method", "modelopt"}};
}

OrderedJson GptOssConfig(const ConversionPlan& plan) {
  std::set<std::string> patterns = {"lm_head", "model.embed_tokens"};
  for (const std::string& module : plan.plain_linear) {
    if (module.find(".layers.") == std::string::npos) continue;
    const size_t begin = module.find(".layers.") + 8, end = module.find('.', begin);
    if (end == std::string::npos) continue;
    const size_t next = module.find('.', end + 1);
    patterns.insert(module.substr(0, begin) + "*" + module.substr(end, next - end));
  }
  return {{"modules_to_not_convert", patterns}, {"quant_method", "mxfp4"}};
}

// Whether every quantised tensor of the output is the source's own.
bool AllQuantisedKept(const ConversionPlan& plan) {
  return std::none_of(plan.matrices.begin(), plan.matrices.end(),
                      [](const auto& matrix) { return matrix->encode.spec.has_scales(); });
}

}  // namespace

std::vector<std::string> IgnoreList(const ConversionPlan& plan) {
  // lm_head always: a checkpoint with tied embeddings has no tensor for it, but a module.
  std::vector<std::string> ignore = {"lm_head"};
  bool gates = false;
  for (const std::string& module : plan.plain_linear) {
    gates |= module.ends_with(".gate");
    if (module != "lm_head") ignore.push_back(module);
  }
  std::sort(ignore.begin() + 1, ignore.end());
  if (gates) ignore.push_back("re:.*\\.gate$");
  return ignore;
}

OrderedJson QuantizationConfigOf(const ConversionPlan& plan) {
  if (plan.quantised.empty()) return nullptr;
  switch (plan.dialect) {
    case Dialect::kDeepSeek:
    case Dialect::kDeepSeekV4:
      return DeepSeekConfig(plan);
    case Dialect::kModelOpt:
      return ModelOptQuantization(plan);
    case Dialect::kGptOss:
      return GptOssConfig(plan);
    case Dialect::kPlain:
    case Dialect::kCompressedTensors:
      return CompressedTensorsConfig(plan);
  }
  return nullptr;
}

std::string RewriteConfig(const HfConfig& source, const ConversionPlan& plan) {
  OrderedJson document = source.json;
  const bool own = plan.dialect == Dialect::kDeepSeekV4 || plan.dialect == Dialect::kGptOss;
  if (own && AllQuantisedKept(plan)) return document.dump(2) + "\n";
  OrderedJson config = QuantizationConfigOf(plan);
  if (!source.quantization) {
    if (!config.is_null()) document["quantization_config"] = std::move(config);
    return document.dump(2) + "\n";
  }
  OrderedJson* at = &document;
  const std::vector<std::string>& path = source.quantization->json_path;
  for (size_t i = 0; i + 1 < path.size(); ++i) at = &(*at)[path[i]];
  if (config.is_null())
    at->erase(path.back());
  else
    (*at)[path.back()] = std::move(config);
  return document.dump(2) + "\n";
}

std::string ModelOptConfig(const ConversionPlan& plan) {
  if (plan.dialect != Dialect::kModelOpt || plan.quantised.empty()) return "";
  const OrderedJson config = {{"producer", Producer()},
                              {"quantization",
                               {{"quant_algo", ModelOptAlgorithm(plan)},
                                {"kv_cache_quant_algo", nullptr},
                                {"group_size", 16},
                                {"exclude_modules", ExactIgnoreList(plan)}}}};
  return config.dump(2) + "\n";
}

}  // namespace blockscale
