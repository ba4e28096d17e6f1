#include "checkpoint/hf_config.h"

#include "checkpoint/json_reader.h"

namespace blockscale {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Where the quantisation of a checkpoint may stand, in the order in which vLLM looks.
const std::vector<std::vector<std::string>>& QuantizationPaths() {
  static const std::vector<std::vector<std::string>> paths = {
      {"quantization_config"}, {"text_config", "quantization_config"}, {"compression_config"}};
  return paths;
}

const OrderedJson* FindPath(const OrderedJson& root, const std::vector<std::string>& path) {
  const OrderedJson* at = &root;
  for (const std::string& key : path) {
    if (!at->is_object()) return nullptr;
    const auto found = at->find(key);
    if (found == at->end()) return nullptr;
    at = &*found;
  }
  return at;
}

// "" when absent; an error when present and not a string.
Result<std::string> OptionalText(const OrderedJson& object, const char* key,
                                 const std::string& file) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return std::string();
  if (!found->is_string())
    return InvalidInput("{}: '{}' is {}, not a string", file, key, found->type_name());
  return found->get<std::string>();
}

bool IsBlockSide(const OrderedJson& side) {
  return side.is_number_unsigned() && side.get<uint64_t>() > 0 &&
         side.get<uint64_t>() < (uint64_t{1} << 31);
}

Result<std::optional<BlockSize>> ParseBlockSize(const OrderedJson& quantization,
                                                const std::string& file) {
  const auto found = quantization.find("weight_block_size");
  if (found == quantization.end() || found->is_null()) return std::optional<BlockSize>();
  if (!found->is_array() || found->size() != 2 || !IsBlockSide((*found)[0]) ||
      !IsBlockSide((*found)[1]))
    return InvalidInput(
        "{}: weight_block_size is {}, not two whole numbers from 1 to 2^31-1 such as "
        "[128, 128]",
        file, found->dump().substr(0, 80));
  return std::optional<BlockSize>({(*found)[0].get<uint64_t>(), (*found)[1].get<uint64_t>()});
}

// compressed-tensors names blocks in each config group: the size that all of them agree on.
std::optional<BlockSize> GroupBlockSize(const OrderedJson& quantization) {
  const auto groups = quantization.find("config_groups");
  if (groups == quantization.end() || !groups->is_object()) return std::nullopt;
  std::optional<BlockSize> size;
  for (const OrderedJson& group : *groups) {
    const auto weights = group.is_object() ? group.find("weights") : group.end();
    if (weights == group.end() || !weights->is_object()) continue;
    const auto block = weights->find("block_structure");
    if (block == weights->end() || !block->is_array() || block->size() != 2) continue;
    if (!IsBlockSide((*block)[0]) || !IsBlockSide((*block)[1])) return std::nullopt;
    const BlockSize here = {(*block)[0].get<uint64_t>(), (*block)[1].get<uint64_t>()};
    if (size && (size->rows != here.rows || size->columns != here.columns)) return std::nullopt;
    size = here;
  }
  return size;
}

Result<QuantizationConfig> ParseQuantization(const OrderedJson& json,
                                             const std::vector<std::string>& path,
                                             const std::string& file) {
  if (!json.is_object())
    return InvalidInput("{}: {} is {}, not an object", file, path.back(), json.type_name());
  QuantizationConfig config{.json_path = path};
  BLOCKSCALE_ASSIGN_OR_RETURN(config.quant_method, OptionalText(json, "quant_method", file));
  BLOCKSCALE_ASSIGN_OR_RETURN(config.format, OptionalText(json, "format", file));
  BLOCKSCALE_ASSIGN_OR_RETURN(config.block_size, ParseBlockSize(json, file));
  if (!config.block_size) config.block_size = GroupBlockSize(json);
  return config;
}

}  // namespace

std::optional<uint64_t> HfConfig::Number(std::string_view key) const {
  for (const std::vector<std::string>& path :
       {std::vector<std::string>{std::string(key)}, {"text_config", std::string(key)}}) {
    const OrderedJson* found = FindPath(json, path);
    if (found != nullptr && found->is_number_unsigned()) return found->get<uint64_t>();
  }
  return std::nullopt;
}

const OrderedJson& HfConfig::quantization_json() const {
  BLOCKSCALE_CHECK(quantization.has_value(), "the config has no quantization_config");
  return *FindPath(json, quantization->json_path);
}

Result<HfConfig> ParseHfConfig(std::string_view text, const std::string& file) {
  HfConfig config;
  BLOCKSCALE_ASSIGN_OR_RETURN(config.json, ParseJsonStrictly(text, file));
  if (!config.json.is_object())
    return InvalidInput("{}: is {}, not a JSON object", file, config.json.type_name());
  BLOCKSCALE_ASSIGN_OR_RETURN(config.model_type, OptionalText(config.json, "model_type", file));
  if (const auto list = config.json.find("architectures");
      list != config.json.end() && !list->is_null()) {
    if (!list->is_array())
      return InvalidInput("{}: 'architectures' is {}, not an array", file, list->type_name());
    for (const OrderedJson& name : *list) {
      if (!name.is_string())
        return InvalidInput("{}: 'architectures' holds {}, not a string", file, name.type_name());
      config.architectures.push_back(name.get<std::string>());
    }
  }
  for (const std::vector<std::string>& path : QuantizationPaths()) {
    const OrderedJson* found = FindPath(config.json, path);
    if (found == nullptr || found->is_null()) continue;
    BLOCKSCALE_ASSIGN_OR_RETURN(config.quantization, ParseQuantization(*found, path, file));
    break;
  }
  return config;
}

}  // namespace blockscale
