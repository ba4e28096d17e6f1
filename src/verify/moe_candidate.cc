#include "verify/moe_candidate.h"

#include <fmt/format.h>

#include <cstring>
#include <set>

#include "base/status.h"
#include "checkpoint/tensor_file.h"

namespace blockscale {
namespace {

DType TypeOf(OutputType type) {
  return type == OutputType::kBf16   ? DType::kBF16
         : type == OutputType::kFp16 ? DType::kF16
                                     : DType::kF32;
}

Status CheckTensor(const MoeCase& c, const TensorInfo& tensor) {
  const DType wanted = TypeOf(c.spec.output);
  const std::vector<uint64_t> shape = {c.tokens, c.spec.hidden};
  const bool runs = tensor.shape.size() == 3 && tensor.shape[0] > 0;
  const std::vector<uint64_t> each(tensor.shape.begin() + (runs ? 1 : 0), tensor.shape.end());
  if (tensor.dtype == wanted && each == shape) return OkStatus();
  return InvalidInput("its tensor is {} {}; it must be {} {}, or [runs, {}, {}]",
                      NameOf(tensor.dtype), ShapeText(tensor.shape), NameOf(wanted),
                      ShapeText(shape), c.tokens, c.spec.hidden);
}

// Every run within the bound; the worst one is reported.
Status CompareRuns(const MoeCase& c, const Expected& expected,
                   const std::vector<std::byte>& outputs, Comparison* worst) {
  const size_t bytes = c.tokens * OutputRowBytes(c.spec);
  for (size_t run = 0; run * bytes < outputs.size(); ++run) {
    const std::byte* output = outputs.data() + run * bytes;
    if (c.spec.finalize != Finalize::kAtomic && std::memcmp(output, outputs.data(), bytes) != 0)
      return InvalidInput("run {} has other bits than run 0", run);
    const Comparison comparison = CompareOutput(c.spec, expected, output);
    if (run == 0 || comparison.worst > worst->worst || !comparison.passed) *worst = comparison;
    if (!comparison.passed) return InvalidInput("run {}: {}", run, comparison.message);
  }
  return OkStatus();
}

Status JudgeCase(const MoeCase& c, const TensorFile& file, const Oracle& oracle,
                 const LayerWeights& weights, CaseResult* result) {
  const TensorInfo* tensor = file.Find(ToString(c));
  if (tensor == nullptr) return InvalidInput("{} has no tensor of this name", file.path());
  BLOCKSCALE_RETURN_IF_ERROR(CheckTensor(c, *tensor));
  BLOCKSCALE_ASSIGN_OR_RETURN(const auto outputs, file.Read<std::byte>(*tensor));
  const CaseData data = MakeCaseData(c);
  BLOCKSCALE_ASSIGN_OR_RETURN(const Expected expected,
                              oracle.Expect(c.spec, weights, data.call(), Accumulation()));
  return CompareRuns(c, expected, outputs, &result->comparison);
}

Status CheckNames(const TensorFile& file, const std::vector<MoeCase>& cases) {
  std::set<std::string> names;
  for (const MoeCase& c : cases) names.insert(ToString(c));
  for (const TensorInfo& tensor : file.header().tensors)
    if (!names.contains(tensor.name))
      return InvalidInput(
          "{}: tensor '{}' is none of the {} cases; give the suite, activation and seed that were "
          "exported, and name tensors as cases.json spells the cases",
          file.path(), tensor.name, cases.size());
  return OkStatus();
}

}  // namespace

Result<std::vector<CaseResult>> JudgeCandidate(FileSystem& files, const std::string& path,
                                               const std::vector<MoeCase>& cases,
                                               const Oracle& oracle,
                                               const std::function<void(const CaseResult&)>& done) {
  BLOCKSCALE_ASSIGN_OR_RETURN(const TensorFile file, TensorFile::Open(files, path));
  BLOCKSCALE_RETURN_IF_ERROR(CheckNames(file, cases));
  std::vector<CaseResult> results;
  CaseWeights weights;
  for (const MoeCase& c : cases) {
    CaseResult result{.moe_case = c};
    result.info.backend = path;
    result.info.kernel = file.Metadata("kernel");
    const Status judged = JudgeCase(c, file, oracle, weights.Of(c), &result);
    if (!judged.ok()) {
      result.status = CaseStatus::kFailed;
      result.message = judged.message();
    }
    results.push_back(std::move(result));
    if (done) done(results.back());
  }
  return results;
}

}  // namespace blockscale
