#include "verify/recoded_pairs.h"

#include <cstring>
#include <map>
#include <optional>
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

}  // namespace blockscale
