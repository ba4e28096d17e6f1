#include "verify/recoded_config.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "verify/structure_check.h"

namespace blockscale {
namespace {

std::set<std::string_view> MethodsOf(Dialect dialect) {
  switch (dialect) {
    case Dialect::kPlain:
      return {};
    case Dialect::kDeepSeek:
    case Dialect::kDeepSeekV4:
      return {"fp8", "mxfp8"};
    case Dialect::kCompressedTensors:
      return {"compressed-tensors"};
    case Dialect::kModelOpt:
      return {"modelopt"};
    case Dialect::kGptOss:
      return {"mxfp4"};
  }
  return {};
}

// What compressed-tensors says of weights and what they are, in the same words: "float 4 group 32".
std::string WordsOf(const QuantSpec& spec) {
  switch (spec.scheme) {
    case Scheme::kInt8Channel:
      return "int 8 channel";
    case Scheme::kFp8Channel:
      return "float 8 channel";
    case Scheme::kFp8Tensor:
      return "float 8 tensor";
    case Scheme::kFp8Block:
      return fmt::format("float 8 block {}x{}", spec.block_rows, spec.block_columns);
    case Scheme::kMxfp8:
      return "float 8 group 32";
    case Scheme::kMxfp4:
      return "float 4 group 32";
    case Scheme::kNvfp4:
      return "float 4 tensor_group 16";
    case Scheme::kInt4Group:
      return fmt::format("int 4 group {}", spec.block_columns);
    case Scheme::kF32:
    case Scheme::kBF16:
    case Scheme::kFP16:
      break;
  }
  return "";
}

std::string WordsOf(const nlohmann::ordered_json& weights) {
  const auto field = [&](const char* key) {
    const auto found = weights.find(key);
    return found == weights.end() || found->is_null() ? std::string()
           : found->is_string()                       ? found->get<std::string>()
                                                      : found->dump();
  };
  std::string words = fmt::format("{} {} {}", field("type"), field("num_bits"), field("strategy"));
  if (const std::string size = field("group_size"); !size.empty()) words += " " + size;
  if (const auto block = weights.find("block_structure"); block != weights.end())
    if (block->is_array() && block->size() == 2)
      words += fmt::format(" {}x{}", (*block)[0].dump(), (*block)[1].dump());
  return words;
}

// The spelling's own name, which a runtime chooses its loader by.
std::string_view FormatOf(const QuantSpec& spec) {
  switch (spec.scheme) {
    case Scheme::kInt8Channel:
      return "int-quantized";
    case Scheme::kFp8Channel:
    case Scheme::kFp8Tensor:
    case Scheme::kFp8Block:
      return "float-quantized";
    case Scheme::kMxfp8:
      return "mxfp8-quantized";
    case Scheme::kMxfp4:
      return "mxfp4-pack-quantized";
    case Scheme::kNvfp4:
      return "nvfp4-pack-quantized";
    case Scheme::kInt4Group:
      return "pack-quantized";
    case Scheme::kF32:
    case Scheme::kBF16:
    case Scheme::kFP16:
      break;
  }
  return "";
}

std::string TextOf(const nlohmann::ordered_json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// "naive-quantized" is the old name of int-quantized and float-quantized.
bool SameFormat(std::string_view said, std::string_view is) {
  return said == is ||
         (said == "naive-quantized" && (is == "int-quantized" || is == "float-quantized"));
}

// A group's own format, or the one that stands for all, is that of its tensors; weights are
// symmetric and their scales stored, not computed.
void CheckGroup(const nlohmann::ordered_json& config, const std::string& name,
                const nlohmann::ordered_json& group,
                const std::map<std::string, std::string_view>& present,
                std::vector<VerifyFailure>* failures) {
  const auto& weights = group["weights"];
  const auto found = present.find(WordsOf(weights));
  if (found == present.end()) {
    failures->push_back(
        {kConfigFileName,
         fmt::format("a config group says '{}', which no tensor is", WordsOf(weights))});
    return;
  }
  std::string format = TextOf(group, "format");
  if (format.empty()) format = TextOf(config, "format");
  if (!SameFormat(format, found->second))
    failures->push_back(
        {kConfigFileName, fmt::format("{} has format '{}', but tensors of '{}' are '{}'", name,
                                      format, found->first, found->second)});
  for (const auto& [key, wanted] : {std::pair{"symmetric", true}, std::pair{"dynamic", false}})
    if (const auto flag = weights.find(key); flag != weights.end() && *flag == !wanted)
      failures->push_back({kConfigFileName, fmt::format("{} says that {} of the weights is {}",
                                                        name, key, !wanted)});
}

// Every scheme of the tensors is declared, and none that is not there.
void CheckGroups(const nlohmann::ordered_json& config, const StoredMatrices& matrices,
                 std::vector<VerifyFailure>* failures) {
  std::map<std::string, std::string_view> present;
  for (const StoredMatrix& matrix : matrices.matrices)
    if (matrix.spec.has_scales()) present[WordsOf(matrix.spec)] = FormatOf(matrix.spec);
  std::set<std::string> declared;
  if (const auto groups = config.find("config_groups");
      groups != config.end() && groups->is_object())
    for (const auto& [name, group] : groups->items())
      if (group.is_object() && group.contains("weights") && group["weights"].is_object()) {
        declared.insert(WordsOf(group["weights"]));
        CheckGroup(config, name, group, present, failures);
      }
  for (const auto& [words, format] : present)
    if (!declared.contains(words))
      failures->push_back(
          {kConfigFileName, fmt::format("no config group says '{}', which tensors are", words)});
}

// With the target "Linear" all that is not quantised must be ignored.
void CheckIgnored(const Checkpoint& converted, const StoredMatrices& matrices,
                  const nlohmann::ordered_json& config, std::vector<VerifyFailure>* failures) {
  const auto groups = config.find("config_groups");
  if (groups == config.end() || groups->size() != 1) return;
  std::unordered_set<const TensorInfo*> quantised;
  for (const StoredMatrix& matrix : matrices.matrices)
    if (matrix.spec.has_scales()) quantised.insert(matrix.codes.info);
  const auto ignore = config.find("ignore");
  CheckIgnoreList(
      converted, ignore == config.end() ? nlohmann::ordered_json::array() : *ignore,
      [&](const TensorInfo& info) { return quantised.contains(&info); }, failures);
}

// ModelOpt names one algorithm for all, or says that it is not one.
void CheckModelOpt(const nlohmann::ordered_json& config, const StoredMatrices& matrices,
                   std::vector<VerifyFailure>* failures) {
  const std::string algorithm = TextOf(config, "quant_algo");
  if (algorithm == "MIXED_PRECISION") return;
  const bool nvfp4 = algorithm == "NVFP4" || algorithm == "W4A16_NVFP4";
  for (const StoredMatrix& matrix : matrices.matrices) {
    if (!matrix.spec.has_scales() || (matrix.spec.scheme == Scheme::kNvfp4) == nvfp4) continue;
    failures->push_back({kConfigFileName, fmt::format("quant_algo is '{}', but {} is {}", algorithm,
                                                      matrix.module, NameOf(matrix.spec.scheme))});
    return;
  }
}

}  // namespace

void CheckRecodedConfig(const Checkpoint& source, const Checkpoint& converted,
                        const RecodedPairs& pairs, std::vector<VerifyFailure>* failures) {
  CheckOtherFields(source, converted, failures);
  std::set<Dialect> dialects;
  for (const StoredMatrix& matrix : pairs.converted.matrices)
    if (matrix.spec.has_scales()) dialects.insert(matrix.dialect);
  const auto& quantization = converted.config().quantization;
  if (dialects.empty() && quantization)
    failures->push_back({kConfigFileName, "has a quantization_config, but nothing is quantised"});
  if (dialects.empty()) return;
  if (!quantization) {
    failures->push_back({kConfigFileName, "has no quantization_config"});
    return;
  }
  for (const Dialect dialect : dialects)
    if (!MethodsOf(dialect).contains(quantization->quant_method))
      failures->push_back(
          {kConfigFileName, fmt::format("quant_method is '{}', but tensors are spelt as {}",
                                        quantization->quant_method, NameOf(dialect))});
  const auto& config = converted.config().quantization_json();
  if (dialects.contains(Dialect::kModelOpt)) CheckModelOpt(config, pairs.converted, failures);
  if (!dialects.contains(Dialect::kCompressedTensors)) return;
  CheckGroups(config, pairs.converted, failures);
  CheckIgnored(converted, pairs.converted, config, failures);
}

}  // namespace blockscale
