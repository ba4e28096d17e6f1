#include "verify/recoded_pairs.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "verify/module_name.h"
#include "verify/structure_check.h"

namespace blockscale {
namespace {

using Names = std::unordered_set<std::string>;

template <typename Matrices>
std::map<std::string, const StoredMatrix*> ByModule(const Matrices& matrices) {
  std::map<std::string, const StoredMatrix*> by_module;
  for (const StoredMatrix& matrix : matrices)
    by_module.emplace(UsualModuleName(matrix.module), &matrix);
  return by_module;
}

void AddNames(const StoredMatrix& matrix, Names& names) {
  for (const TensorRef& part :
       {matrix.codes, matrix.scales, matrix.global, matrix.input_scale, matrix.shape})
    if (part) names.insert(part.info->name);
}

// Values of a bias: one of stacked experts, or a tensor of its own.
Result<std::vector<std::byte>> BiasBytes(const Checkpoint& checkpoint, const StoredBias& bias) {
  const uint64_t width = bias.values.info->bytes() / bias.values.info->elements();
  std::vector<std::byte> spread(((bias.count - 1) * bias.step + 1) * width);
  BLOCKSCALE_RETURN_IF_ERROR(checkpoint.Read(bias.values, bias.first * width, spread));
  std::vector<std::byte> bytes(bias.count * width);
  for (uint64_t i = 0; i < bias.count; ++i)
    std::memcpy(bytes.data() + i * width, spread.data() + i * bias.step * width, width);
  return bytes;
}

// The bias of a module where it is a tensor of its own, under either name.
std::optional<StoredBias> OwnBias(const Checkpoint& checkpoint, const std::string& module) {
  TensorRef tensor = checkpoint.Find(module + ".bias");
  if (!tensor) tensor = checkpoint.Find(ShortModuleName(module) + ".bias");
  if (!tensor || tensor.info->elements() == 0) return std::nullopt;
  return StoredBias{module, tensor, tensor.info->elements()};
}

class UnchangedCheck {
 public:
  UnchangedCheck(const Checkpoint& source, const Checkpoint& converted, const RecodedPairs& pairs,
                 std::vector<VerifyFailure>* failures)
      : source_(source), converted_(converted), failures_(failures) {
    for (const auto& [from, to] : pairs.changed) {
      AddNames(*from, dropped_);
      AddNames(*to, made_);
      changed_.insert(UsualModuleName(from->module));
    }
    // A tensor that both have (INT8 and FP8 call their codes alike) is no kept one.
    for (const StoredBias& bias : pairs.source.biases) AddBias(bias, true);
    for (const StoredBias& bias : pairs.converted.biases) AddBias(bias, false);
  }

  Status Run(uint64_t* compared) {
    for (const auto& [from, to] : biases_) {
      BLOCKSCALE_RETURN_IF_ERROR(CompareBias(from, to));
      ++*compared;
    }
    for (const TensorRef& tensor : source_.tensors()) {
      const std::string& name = tensor.info->name;
      if (dropped_.contains(name)) continue;
      kept_.insert(name);
      const TensorRef found = converted_.Find(name);
      if (!found) {
        failures_->push_back({name, "is missing in the converted checkpoint"});
        continue;
      }
      BLOCKSCALE_RETURN_IF_ERROR(CompareTensor(source_, tensor, converted_, found, failures_));
      ++*compared;
    }
    for (const TensorRef& tensor : converted_.tensors()) {
      const std::string& name = tensor.info->name;
      if (!kept_.contains(name) && !made_.contains(name))
        failures_->push_back({name, "does not belong there: the source has nothing of that name"});
    }
    return OkStatus();
  }

 private:
  // Stacked on one side and single on the other; stacked on both is a kept tensor.
  void AddBias(const StoredBias& stacked, bool in_source) {
    if (!changed_.contains(UsualModuleName(stacked.module))) return;
    const std::optional<StoredBias> own = OwnBias(in_source ? converted_ : source_, stacked.module);
    const std::string& name = stacked.values.info->name;
    (in_source ? dropped_ : made_).insert(name);
    if (!own) {
      failures_->push_back({stacked.module + ".bias", "is missing beside '" + name + "'"});
      return;
    }
    (in_source ? made_ : dropped_).insert(own->values.info->name);
    biases_.emplace_back(in_source ? stacked : *own, in_source ? *own : stacked);
  }

  Status CompareBias(const StoredBias& from, const StoredBias& to) {
    BLOCKSCALE_ASSIGN_OR_RETURN(const std::vector<std::byte> before, BiasBytes(source_, from));
    BLOCKSCALE_ASSIGN_OR_RETURN(const std::vector<std::byte> after, BiasBytes(converted_, to));
    if (from.values.info->dtype != to.values.info->dtype || before != after)
      failures_->push_back({from.module + ".bias", "differs from the source's values"});
    return OkStatus();
  }

  const Checkpoint& source_;
  const Checkpoint& converted_;
  std::vector<VerifyFailure>* failures_;
  Names dropped_, made_, kept_;
  std::unordered_set<std::string> changed_;
  std::vector<std::pair<StoredBias, StoredBias>> biases_;
};

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

// Every scheme of the tensors is declared, and none that is not there.
void CheckGroups(const nlohmann::ordered_json& config, const StoredMatrices& matrices,
                 std::vector<VerifyFailure>* failures) {
  std::set<std::string> declared, present;
  if (const auto groups = config.find("config_groups"); groups != config.end())
    for (const auto& group : *groups)
      if (group.is_object() && group.contains("weights") && group["weights"].is_object())
        declared.insert(WordsOf(group["weights"]));
  for (const StoredMatrix& matrix : matrices.matrices)
    if (matrix.spec.has_scales()) present.insert(WordsOf(matrix.spec));
  for (const std::string& words : present)
    if (!declared.contains(words))
      failures->push_back(
          {kConfigFileName, fmt::format("no config group says '{}', which tensors are", words)});
  for (const std::string& words : declared)
    if (!present.contains(words))
      failures->push_back(
          {kConfigFileName, fmt::format("a config group says '{}', which no tensor is", words)});
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

}  // namespace

Result<RecodedPairs> PairRecoded(const Checkpoint& source, const Checkpoint& converted,
                                 std::vector<VerifyFailure>* failures) {
  RecodedPairs pairs;
  BLOCKSCALE_ASSIGN_OR_RETURN(pairs.source, FindStoredMatrices(source));
  std::vector<Finding> findings;
  BLOCKSCALE_ASSIGN_OR_RETURN(pairs.converted, FindStoredMatrices(converted, &findings));
  for (const Finding& finding : findings)
    failures->push_back({converted.folder(), finding.message});
  const auto to = ByModule(pairs.converted.matrices);
  for (const auto& [module, matrix] : ByModule(pairs.source.matrices)) {
    const auto found = to.find(module);
    if (found == to.end()) {
      // A plain matrix that is missing is a missing tensor (CheckUnchanged).
      if (matrix->spec.has_scales())
        failures->push_back({matrix->module, "is no matrix of the converted checkpoint"});
      continue;
    }
    const StoredMatrix& now = *found->second;
    if (now.spec != matrix->spec || (now.dialect != matrix->dialect && now.spec.has_scales()))
      pairs.changed.emplace_back(matrix, &now);
  }
  return pairs;
}

Status CheckUnchanged(const Checkpoint& source, const Checkpoint& converted,
                      const RecodedPairs& pairs, std::vector<VerifyFailure>* failures,
                      uint64_t* compared) {
  return UnchangedCheck(source, converted, pairs, failures).Run(compared);
}

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
  if (!dialects.contains(Dialect::kCompressedTensors)) return;
  const auto& config = converted.config().quantization_json();
  CheckGroups(config, pairs.converted, failures);
  CheckIgnored(converted, pairs.converted, config, failures);
}

}  // namespace blockscale
