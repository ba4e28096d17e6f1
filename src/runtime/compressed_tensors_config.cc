#include "runtime/compressed_tensors_config.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>

namespace blockscale {
namespace {

using OrderedJson = nlohmann::ordered_json;

template <size_t kCount>
bool IsOneOf(std::string_view text, const std::string_view (&list)[kCount]) {
  return std::find(std::begin(list), std::end(list), text) != std::end(list);
}

constexpr std::string_view kArgKeys[] = {
    "num_bits", "type",     "symmetric",   "group_size", "strategy", "block_structure",
    "dynamic",  "actorder", "scale_dtype", "zp_dtype",   "observer", "observer_kwargs"};
constexpr std::string_view kGroupKeys[] = {"targets", "weights", "input_activations",
                                           "output_activations", "format"};
constexpr std::string_view kStrategies[] = {"tensor", "channel",      "group",    "block",
                                            "token",  "tensor_group", "attn_head"};
constexpr std::string_view kDynamicStrategies[] = {"tensor", "token", "group", "tensor_group"};

std::string Short(const OrderedJson& value) { return value.dump().substr(0, 80); }

Result<std::string> DynamicText(const OrderedJson& value, const std::string& where) {
  if (value.is_boolean()) return std::string(value.get<bool>() ? "true" : "false");
  if (value == "local") return std::string("local");
  return InvalidInput("{}.dynamic is {}, not false, true or \"local\"", where, Short(value));
}

Status CheckStrategy(const QuantizationArgs& args, const std::string& where) {
  if (!IsOneOf(args.strategy, kStrategies))
    return InvalidInput("{}.strategy is '{}', which compressed-tensors does not know", where,
                        args.strategy);
  if (args.dynamic == "false" && args.strategy == "token")
    return InvalidInput("{}: strategy 'token' must be dynamic", where);
  if (args.dynamic != "false" && !IsOneOf(args.strategy, kDynamicStrategies))
    return InvalidInput(
        "{}: a dynamic strategy must be tensor, token, group or tensor_group, not '{}'", where,
        args.strategy);
  return OkStatus();
}

Result<std::optional<QuantizationArgs>> ParseArgs(const OrderedJson& group, const char* key,
                                                  const std::string& group_name) {
  const auto found = group.find(key);
  if (found == group.end() || found->is_null()) return std::optional<QuantizationArgs>();
  const std::string where = fmt::format("config_groups.{}.{}", group_name, key);
  if (!found->is_object()) return InvalidInput("{} is {}, not an object", where, Short(*found));
  QuantizationArgs args;
  for (const auto& [name, value] : found->items()) {
    if (!IsOneOf(name, kArgKeys))
      return InvalidInput("{} has the key '{}', which compressed-tensors forbids", where, name);
    if (name == "num_bits") {
      if (!value.is_number_unsigned())
        return InvalidInput("{}.num_bits is {}", where, Short(value));
      args.num_bits = value.get<int>();
    } else if (name == "type") {
      if (value != "int" && value != "float")
        return InvalidInput("{}.type is {}, not \"int\" or \"float\"", where, Short(value));
      args.type = value.get<std::string>();
    } else if (name == "symmetric") {
      if (!value.is_boolean()) return InvalidInput("{}.symmetric is {}", where, Short(value));
      args.symmetric = value.get<bool>();
    } else if (name == "strategy") {
      if (!value.is_string()) return InvalidInput("{}.strategy is {}", where, Short(value));
      args.strategy = value.get<std::string>();
    } else if (name == "dynamic") {
      BLOCKSCALE_ASSIGN_OR_RETURN(args.dynamic, DynamicText(value, where));
    }
  }
  if (args.strategy.empty()) args.strategy = args.dynamic == "true" ? "token" : "tensor";
  BLOCKSCALE_RETURN_IF_ERROR(CheckStrategy(args, where));
  return std::optional<QuantizationArgs>(args);
}

Result<std::vector<std::string>> ParseNames(const OrderedJson& json, const std::string& where) {
  if (!json.is_array()) return InvalidInput("{} is {}, not an array", where, Short(json));
  std::vector<std::string> names;
  for (const OrderedJson& name : json) {
    if (!name.is_string()) return InvalidInput("{} holds {}, not a string", where, Short(name));
    names.push_back(name.get<std::string>());
  }
  return names;
}

Result<QuantizationGroup> ParseGroup(const std::string& name, const OrderedJson& json) {
  const std::string where = "config_groups." + name;
  if (!json.is_object()) return InvalidInput("{} is {}, not an object", where, Short(json));
  for (const auto& [key, value] : json.items())
    if (!IsOneOf(key, kGroupKeys))
      return InvalidInput("{} has the key '{}', which compressed-tensors forbids", where, key);
  QuantizationGroup group{.name = name};
  if (!json.contains("targets")) return InvalidInput("{} has no targets", where);
  BLOCKSCALE_ASSIGN_OR_RETURN(group.targets, ParseNames(json.at("targets"), where + ".targets"));
  BLOCKSCALE_ASSIGN_OR_RETURN(group.weights, ParseArgs(json, "weights", name));
  BLOCKSCALE_ASSIGN_OR_RETURN(group.input_activations, ParseArgs(json, "input_activations", name));
  return group;
}

void AddRemarks(const OrderedJson& json, CompressedTensorsConfig& config) {
  if (json.value("quantization_status", OrderedJson()) != "compressed")
    config.remarks.push_back(
        "quantization_status is not \"compressed\": Transformers then loads the codes without "
        "their "
        "scales");
  for (const QuantizationGroup& group : config.groups)
    if (group.name != "group_0" && config.groups.size() == 1)
      config.remarks.push_back("the only group is '" + group.name +
                               "'; TensorRT-LLM looks for 'group_0'");
}

}  // namespace

Result<CompressedTensorsConfig> ParseCompressedTensorsConfig(const OrderedJson& json) {
  CompressedTensorsConfig config;
  if (const auto format = json.find("format"); format != json.end() && format->is_string())
    config.format = format->get<std::string>();
  if (const auto sparsity = json.find("sparsity_config");
      sparsity != json.end() && !sparsity->empty())
    return InvalidInput("sparsity_config is not empty, which vLLM refuses");
  const auto groups = json.find("config_groups");
  if (groups == json.end() || !groups->is_object() || groups->empty())
    return InvalidInput("config_groups is missing or empty: nothing would be quantised");
  for (const auto& [name, group] : groups->items()) {
    BLOCKSCALE_ASSIGN_OR_RETURN(QuantizationGroup parsed, ParseGroup(name, group));
    config.groups.push_back(std::move(parsed));
  }
  if (const auto ignore = json.find("ignore"); ignore != json.end() && !ignore->is_null()) {
    BLOCKSCALE_ASSIGN_OR_RETURN(config.ignore, ParseNames(*ignore, "ignore"));
  }
  AddRemarks(json, config);
  return config;
}

bool IsDynamicTokenW8A8(const QuantizationGroup& group) {
  if (!group.weights || !group.input_activations) return false;
  const QuantizationArgs &weights = *group.weights, &inputs = *group.input_activations;
  return weights.num_bits == 8 && inputs.num_bits == 8 && weights.symmetric &&
         (weights.strategy == "tensor" || weights.strategy == "channel") &&
         weights.dynamic == "false" && inputs.strategy == "token" && inputs.dynamic == "true";
}

}  // namespace blockscale
