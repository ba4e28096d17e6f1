#include "verify/verify_checkpoint.h"

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <mutex>
#include <optional>
#include <regex>
#include <thread>

#include "verify/matrix_check.h"
#include "verify/structure_check.h"

namespace blockscale {
namespace {

Result<std::optional<std::regex>> ParseMatch(const std::string& pattern) {
  if (pattern.empty()) return std::optional<std::regex>();
  try {
    return std::optional<std::regex>(pattern);
  } catch (const std::regex_error& error) {
    return InvalidInput("--match '{}' is not a regular expression: {}", pattern, error.what());
  }
}

// Every FP8 matrix of the source counts, paired or not: one that has no counterpart is a failure,
// not a pattern that matches nothing.
Status ExpectMatch(const Checkpoint& source, const std::string& pattern, const std::regex& regex) {
  for (const TensorRef& tensor : source.tensors())
    if (tensor.info->dtype == DType::kF8E4M3 && std::regex_search(tensor.info->name, regex))
      return OkStatus();
  return InvalidInput("--match '{}' matches no FP8 matrix of {}", pattern, source.folder());
}

// `sample` of them, evenly spread, the first and the last among them.
void KeepSample(uint64_t sample, std::vector<MatrixPair>* pairs) {
  const uint64_t total = pairs->size();
  if (sample == 0 || sample >= total) return;
  std::vector<MatrixPair> kept;
  for (uint64_t i = 0; i < sample; ++i)
    kept.push_back((*pairs)[sample == 1 ? 0 : i * (total - 1) / (sample - 1)]);
  *pairs = std::move(kept);
}

struct MatrixOutcome {
  MatrixQuality quality;
  std::vector<VerifyFailure> failures;
  Status status;
};

std::vector<MatrixOutcome> CheckMatrices(const Checkpoint& source, const Checkpoint& converted,
                                         const std::vector<MatrixPair>& pairs,
                                         const VerifyOptions& options) {
  namespace tbb = oneapi::tbb;
  const unsigned threads =
      options.threads != 0 ? options.threads : std::max(1u, std::thread::hardware_concurrency());
  std::vector<MatrixOutcome> outcomes(pairs.size());
  std::mutex mutex;
  uint64_t done = 0;
  const tbb::global_control workers(tbb::global_control::max_allowed_parallelism, threads);
  tbb::task_arena arena(static_cast<int>(threads));
  arena.execute([&] {
    tbb::parallel_for(size_t{0}, pairs.size(), [&](size_t i) {
      MatrixOutcome& outcome = outcomes[i];
      Result<MatrixQuality> quality = CheckMatrix(source, converted, pairs[i], &outcome.failures);
      if (quality.ok())
        outcome.quality = std::move(*quality);
      else
        outcome.status = quality.status();
      const std::lock_guard lock(mutex);
      ++done;
      if (options.progress) options.progress(done, pairs.size());
    });
  });
  return outcomes;
}

}  // namespace

Result<VerifyReport> VerifyCheckpointOn(FileSystem& files, const VerifyOptions& options) {
  BLOCKSCALE_ASSIGN_OR_RETURN(const std::optional<std::regex> match, ParseMatch(options.match));
  BLOCKSCALE_ASSIGN_OR_RETURN(const Checkpoint source, Checkpoint::Open(files, options.source));
  std::vector<Finding> tolerated;  // CheckIndex finds these for itself
  BLOCKSCALE_ASSIGN_OR_RETURN(const Checkpoint converted,
                              Checkpoint::Open(files, options.converted, &tolerated));
  VerifyReport report;
  for (const TensorRef& tensor : source.tensors())
    report.matrices_total += tensor.info->dtype == DType::kF8E4M3;
  if (report.matrices_total == 0)
    return InvalidInput("{}: holds no F8_E4M3 matrix; is this the source of the conversion?",
                        options.source);
  // First, so that a missing shard is named before each tensor that is missing with it.
  BLOCKSCALE_RETURN_IF_ERROR(CheckIndex(converted, &report.failures));
  std::vector<MatrixPair> pairs = PairMatrices(source, converted, &report.failures);
  if (match) {
    BLOCKSCALE_RETURN_IF_ERROR(ExpectMatch(source, options.match, *match));
    std::erase_if(pairs, [&](const MatrixPair& pair) {
      return !std::regex_search(pair.fp8.info->name, *match);
    });
  }
  KeepSample(options.sample, &pairs);
  for (MatrixOutcome& outcome : CheckMatrices(source, converted, pairs, options)) {
    BLOCKSCALE_RETURN_IF_ERROR(outcome.status);
    report.matrices.push_back(std::move(outcome.quality));
    for (VerifyFailure& failure : outcome.failures) report.failures.push_back(std::move(failure));
  }
  BLOCKSCALE_RETURN_IF_ERROR(
      CheckKeptTensors(source, converted, &report.failures, &report.kept_checked));
  CheckConfig(source, converted, &report.failures);
  BLOCKSCALE_RETURN_IF_ERROR(CheckSideFiles(source, converted, &report.failures));
  return report;
}

Result<VerifyReport> VerifyCheckpoint(const VerifyOptions& options) {
  return VerifyCheckpointOn(PosixFileSystem(), options);
}

}  // namespace blockscale
