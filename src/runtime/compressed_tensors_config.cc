#include "runtime/compressed_tensors_config.h"

#include <algorithm>
#include <cctype>
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
constexpr std::string_view kActivationFormats[] = {"naive-quantized", "int-quantized",
                                                   "float-quantized", "nvfp4-pack-quantized",
                                                   "mxfp4-pack-quantized"};

std::string Short(const OrderedJson& value) { return value.dump().substr(0, 80); }

// The validators lower the case of these words before they compare.
Result<std::string> Word(const OrderedJson& value, const std::string& where) {
  if (!value.is_string()) return InvalidInput("{} is {}, not a word", where, Short(value));
  std::string word = value.get<std::string>();
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return word;
}

Result<std::string> DynamicText(const OrderedJson& value, const std::string& where) {
  if (value.is_boolean()) return std::string(value.get<bool>() ? "true" : "false");
  if (value.is_string()) {
    BLOCKSCALE_ASSIGN_OR_RETURN(const std::string word, Word(value, where));
    if (word == "local") return word;
  }
  return InvalidInput("{} is {}, not false, true or \"local\"", where, Short(value));
}

Result<int64_t> WholeNumber(const OrderedJson& value, const std::string& where) {
  constexpr int64_t kLimit = int64_t{1} << 31;
  // Compared as what it is: 2^64 - 1 is not -1.
  const bool fits = value.is_number_unsigned()  ? value.get<uint64_t>() <= uint64_t{kLimit}
                    : value.is_number_integer() ? value.get<int64_t>() >= -kLimit
                                                : false;
  if (!fits) return InvalidInput("{} is {}, not a whole number below 2^31", where, Short(value));
  return value.get<int64_t>();
}

Result<std::pair<int64_t, int64_t>> BlockStructure(const OrderedJson& value,
                                                   const std::string& where) {
  if (!value.is_array() || value.size() != 2)
    return InvalidInput("{} is {}, not two numbers [rows, columns]", where, Short(value));
  std::pair<int64_t, int64_t> block;
  BLOCKSCALE_ASSIGN_OR_RETURN(block.first, WholeNumber(value[0], where));
  BLOCKSCALE_ASSIGN_OR_RETURN(block.second, WholeNumber(value[1], where));
  if (block.first <= 0 || block.second <= 0)
    return InvalidInput("{} is {}; both must be positive", where, Short(value));
  return block;
}

// The rules that hold between keys.
Status CheckStrategy(QuantizationArgs& args, const std::string& where) {
  const bool sized = args.group_size && *args.group_size > 0;
  if (args.group_size && !sized && *args.group_size != -1)
    return InvalidInput("{}.group_size is {}, not -1 or positive", where, *args.group_size);
  if (args.strategy.empty())
    args.strategy = !args.group_size ? "tensor" : sized ? "group" : "channel";
  if (!IsOneOf(args.strategy, kStrategies))
    return InvalidInput("{}.strategy is '{}', which compressed-tensors does not know", where,
                        args.strategy);
  if (args.dynamic == "false" && args.strategy == "token")
    return InvalidInput("{}: strategy 'token' must be dynamic", where);
  if (args.dynamic != "false" && !IsOneOf(args.strategy, kDynamicStrategies))
    return InvalidInput(
        "{}: a dynamic strategy must be tensor, token, group or tensor_group, not '{}'", where,
        args.strategy);
  if (args.dynamic == "local" && args.strategy != "tensor_group")
    return InvalidInput("{}: dynamic \"local\" needs strategy 'tensor_group', not '{}'", where,
                        args.strategy);
  const bool grouped = args.strategy == "group" || args.strategy == "tensor_group";
  if (grouped != sized)
    return InvalidInput("{}: strategy '{}' {} a positive group_size", where, args.strategy,
                        grouped ? "needs" : "forbids");
  if ((args.strategy == "block") != args.block_structure.has_value())
    return InvalidInput("{}: strategy '{}' {} block_structure", where, args.strategy,
                        args.block_structure ? "forbids" : "needs");
  return OkStatus();
}

// Keys whose value decides nothing here; only their types are checked.
Status CheckOtherKey(const std::string& key, const OrderedJson& value, const std::string& where) {
  const bool fits = key == "observer_kwargs" ? value.is_object()
                    : key == "actorder"      ? value.is_string() || value.is_boolean()
                                             : value.is_string();
  if (fits || (value.is_null() && key != "observer_kwargs")) return OkStatus();
  return InvalidInput("{} is {}", where, Short(value));
}

Status ParseArg(const std::string& key, const OrderedJson& value, const std::string& where,
                QuantizationArgs& args) {
  const bool may_be_null = key == "strategy" || key == "group_size" || key == "block_structure";
  if (may_be_null && value.is_null()) return OkStatus();
  if (key == "num_bits") {
    BLOCKSCALE_ASSIGN_OR_RETURN(const int64_t bits, WholeNumber(value, where));
    args.num_bits = static_cast<int>(bits);
  } else if (key == "type") {
    BLOCKSCALE_ASSIGN_OR_RETURN(args.type, Word(value, where));
    if (args.type != "int" && args.type != "float")
      return InvalidInput("{} is {}, not \"int\" or \"float\"", where, Short(value));
  } else if (key == "symmetric") {
    if (!value.is_boolean()) return InvalidInput("{} is {}", where, Short(value));
    args.symmetric = value.get<bool>();
  } else if (key == "strategy") {
    BLOCKSCALE_ASSIGN_OR_RETURN(args.strategy, Word(value, where));
  } else if (key == "dynamic") {
    BLOCKSCALE_ASSIGN_OR_RETURN(args.dynamic, DynamicText(value, where));
  } else if (key == "group_size") {
    BLOCKSCALE_ASSIGN_OR_RETURN(args.group_size, WholeNumber(value, where));
  } else if (key == "block_structure") {
    BLOCKSCALE_ASSIGN_OR_RETURN(args.block_structure, BlockStructure(value, where));
  } else {
    return CheckOtherKey(key, value, where);
  }
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
    BLOCKSCALE_RETURN_IF_ERROR(ParseArg(name, value, where + "." + name, args));
  }
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
  if (const auto format = json.find("format"); format != json.end() && !format->is_null()) {
    if (!format->is_string()) return InvalidInput("{}.format is {}", where, Short(*format));
    group.format = format->get<std::string>();
  }
  return group;
}

// Keys that a later version added: one that is older, and forbids what it does not know, fails.
void AddVersionRemarks(const OrderedJson& group, const std::string& name,
                       std::vector<std::string>& remarks) {
  const auto add = [&](const std::string& key) {
    remarks.push_back(fmt::format(
        "config_groups.{}: '{}' is unknown to older versions, which refuse the file", name, key));
  };
  if (group.contains("format")) add("format");
  for (const char* args : {"weights", "input_activations"}) {
    const auto found = group.find(args);
    if (found == group.end() || !found->is_object()) continue;
    for (const char* key : {"scale_dtype", "zp_dtype"})
      if (found->contains(key)) add(std::string(args) + "." + key);
  }
}

bool IsSet(const OrderedJson& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && !found->empty();
}

void AddRemarks(const OrderedJson& json, CompressedTensorsConfig& config) {
  if (json.value("quantization_status", OrderedJson()) != "compressed")
    config.remarks.push_back(
        "quantization_status is not \"compressed\": Transformers then loads the codes without "
        "their scales");
  if (config.groups.size() == 1 && config.groups[0].name != "group_0")
    config.remarks.push_back("the only group is '" + config.groups[0].name +
                             "'; TensorRT-LLM looks for 'group_0'");
  for (const auto& [name, group] : json.at("config_groups").items())
    AddVersionRemarks(group, name, config.remarks);
  for (const char* key : {"kv_cache_scheme", "transform_config"})
    if (IsSet(json, key))
      config.remarks.push_back(std::string(key) + " is set; what it does is not judged here");
}

}  // namespace

Result<CompressedTensorsConfig> ParseCompressedTensorsConfig(const OrderedJson& json) {
  CompressedTensorsConfig config;
  if (const auto format = json.find("format"); format != json.end() && !format->is_null()) {
    if (!format->is_string()) return InvalidInput("format is {}, not a string", Short(*format));
    config.format = format->get<std::string>();
  }
  if (const auto sparsity = json.find("sparsity_config");
      sparsity != json.end() && !sparsity->empty())
    return InvalidInput("sparsity_config is not empty, which vLLM refuses");
  const auto groups = json.find("config_groups");
  if (groups == json.end() || !groups->is_object() || groups->empty())
    return InvalidInput("config_groups is missing or empty: nothing would be quantised");
  for (const auto& [name, group] : groups->items()) {
    BLOCKSCALE_ASSIGN_OR_RETURN(QuantizationGroup parsed, ParseGroup(name, group));
    if (parsed.format.empty()) parsed.format = config.format;
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
         weights.dynamic == "false" && inputs.strategy == "token" && inputs.dynamic != "false";
}

bool IsDynamicFp8W8A8(const QuantizationGroup& group) {
  if (!group.weights || !group.input_activations) return false;
  const QuantizationArgs &weights = *group.weights, &inputs = *group.input_activations;
  return weights.type == "float" && inputs.type == "float" && weights.num_bits == 8 &&
         inputs.num_bits == 8 && weights.symmetric && weights.dynamic == "false" &&
         (weights.strategy == "tensor" || weights.strategy == "channel" ||
          weights.strategy == "block") &&
         inputs.dynamic != "false";
}

bool IsActivationFormat(const std::string& format) { return IsOneOf(format, kActivationFormats); }

}  // namespace blockscale
