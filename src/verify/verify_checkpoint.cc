#include "verify/verify_checkpoint.h"

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>
#include <re2/re2.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <thread>

#include "verify/matrix_check.h"
#include "verify/recoded_check.h"
#include "verify/recoded_config.h"
#include "verify/recoded_pairs.h"
#include "verify/structure_check.h"

namespace blockscale {
namespace {

// Null for "match all".
using Match = std::unique_ptr<const re2::RE2>;

Result<Match> ParseMatch(const std::string& pattern) {
  if (pattern.empty()) return Match();
  auto match = std::make_unique<const re2::RE2>(pattern, re2::RE2::Quiet);
  if (!match->ok())
    return InvalidInput("--match '{}' is not a regular expression: {}", pattern, match->error());
  return Match(std::move(match));
}

// Every FP8 matrix of the source counts, paired or not: one that has no counterpart is a failure,
// not a pattern that matches nothing.
Status ExpectMatch(const Checkpoint& source, const std::string& pattern, const re2::RE2& regex) {
  for (const TensorRef& tensor : source.tensors())
    if (tensor.info->dtype == DType::kF8E4M3 && re2::RE2::PartialMatch(tensor.info->name, regex))
      return OkStatus();
  return InvalidInput("--match '{}' matches no FP8 matrix of {}", pattern, source.folder());
}

// `sample` of them, evenly spread, the first and the last among them.
template <typename Pair>
void KeepSample(uint64_t sample, std::vector<Pair>* pairs) {
  const uint64_t total = pairs->size();
  if (sample == 0 || sample >= total) return;
  std::vector<Pair> kept;
  for (uint64_t i = 0; i < sample; ++i)
    kept.push_back((*pairs)[sample == 1 ? 0 : i * (total - 1) / (sample - 1)]);
  *pairs = std::move(kept);
}

struct MatrixOutcome {
  MatrixQuality quality;
  std::vector<VerifyFailure> failures;
  Status status;
};

// Runs `check` (index, failures) -> Result<MatrixQuality> for `count` matrices.
template <typename Check>
std::vector<MatrixOutcome> CheckMatrices(size_t count, const VerifyOptions& options, Check check) {
  namespace tbb = oneapi::tbb;
  const unsigned threads =
      options.threads != 0 ? options.threads : std::max(1u, std::thread::hardware_concurrency());
  std::vector<MatrixOutcome> outcomes(count);
  std::mutex mutex;
  uint64_t done = 0;
  const tbb::global_control workers(tbb::global_control::max_allowed_parallelism, threads);
  tbb::task_arena arena(static_cast<int>(threads));
  arena.execute([&] {
    tbb::parallel_for(size_t{0}, count, [&](size_t i) {
      MatrixOutcome& outcome = outcomes[i];
      Result<MatrixQuality> quality = check(i, &outcome.failures);
      if (quality.ok())
        outcome.quality = std::move(*quality);
      else
        outcome.status = quality.status();
      const std::lock_guard lock(mutex);
      ++done;
      if (options.progress) options.progress(done, count);
    });
  });
  return outcomes;
}

Status Collect(std::vector<MatrixOutcome> outcomes, VerifyReport& report) {
  for (MatrixOutcome& outcome : outcomes) {
    BLOCKSCALE_RETURN_IF_ERROR(outcome.status);
    report.matrices.push_back(std::move(outcome.quality));
    for (VerifyFailure& failure : outcome.failures) report.failures.push_back(std::move(failure));
  }
  return OkStatus();
}

// FP8 to INT8 has a check of its own: pairing and arithmetic by other means than the converter's.
bool IsFp8ToInt8(const Checkpoint& source, const Checkpoint& converted) {
  const auto holds = [](const Checkpoint& checkpoint, DType dtype) {
    const auto& tensors = checkpoint.tensors();
    return std::any_of(tensors.begin(), tensors.end(), [&](const TensorRef& tensor) {
      return tensor.info->dtype == dtype && tensor.info->name.ends_with(".weight");
    });
  };
  const auto packed = [](const Checkpoint& checkpoint) {
    const auto& tensors = checkpoint.tensors();
    return std::any_of(tensors.begin(), tensors.end(), [](const TensorRef& tensor) {
      const std::string& name = tensor.info->name;
      return name.ends_with(".weight_packed") || name.ends_with("_blocks");
    });
  };
  const auto& method = source.config().quantization;
  const bool powers =
      std::any_of(source.tensors().begin(), source.tensors().end(),
                  [](const TensorRef& tensor) { return tensor.info->dtype == DType::kF8E8M0; });
  if (powers || (method && method->quant_method != "fp8")) return false;
  if (!holds(source, DType::kF8E4M3) || packed(source) || packed(converted)) return false;
  if (holds(source, DType::kI8) || holds(converted, DType::kF8E4M3)) return false;
  const auto& quantization = converted.config().quantization;
  return holds(converted, DType::kI8) || (quantization && quantization->format == "int-quantized");
}

Result<VerifyReport> VerifyFp8ToInt8(const Checkpoint& source, const Checkpoint& converted,
                                     const VerifyOptions& options, const Match& match) {
  VerifyReport report;
  for (const TensorRef& tensor : source.tensors())
    report.matrices_total += tensor.info->dtype == DType::kF8E4M3;
  // First, so that a missing shard is named before each tensor that is missing with it.
  BLOCKSCALE_RETURN_IF_ERROR(CheckIndex(converted, &report.failures));
  std::vector<MatrixPair> pairs = PairMatrices(source, converted, &report.failures);
  if (match) {
    BLOCKSCALE_RETURN_IF_ERROR(ExpectMatch(source, options.match, *match));
    std::erase_if(pairs, [&](const MatrixPair& pair) {
      return !re2::RE2::PartialMatch(pair.fp8.info->name, *match);
    });
  }
  KeepSample(options.sample, &pairs);
  BLOCKSCALE_RETURN_IF_ERROR(
      Collect(CheckMatrices(pairs.size(), options,
                            [&](size_t i, std::vector<VerifyFailure>* failures) {
                              return CheckMatrix(source, converted, pairs[i], failures);
                            }),
              report));
  BLOCKSCALE_RETURN_IF_ERROR(
      CheckKeptTensors(source, converted, &report.failures, &report.kept_checked));
  CheckConfig(source, converted, &report.failures);
  BLOCKSCALE_RETURN_IF_ERROR(CheckSideFiles(source, converted, &report.failures));
  return report;
}

Result<VerifyReport> VerifyRecoded(const Checkpoint& source, const Checkpoint& converted,
                                   const VerifyOptions& options, const Match& match) {
  VerifyReport report;
  BLOCKSCALE_RETURN_IF_ERROR(CheckIndex(converted, &report.failures));
  const size_t before = report.failures.size();
  BLOCKSCALE_ASSIGN_OR_RETURN(const RecodedPairs pairs,
                              PairRecoded(source, converted, &report.failures));
  report.matrices_total = pairs.changed.size();
  if (report.matrices_total == 0 && report.failures.size() == before)
    return InvalidInput("{}: every matrix is as it is in {}; is this the source of the conversion?",
                        options.converted, options.source);
  auto chosen = pairs.changed;
  if (match) {
    std::erase_if(chosen, [&](const auto& pair) {
      return !re2::RE2::PartialMatch(pair.first->codes.info->name, *match) &&
             !re2::RE2::PartialMatch(pair.first->module, *match);
    });
    if (chosen.empty())
      return InvalidInput("--match '{}' matches no converted matrix of {}", options.match,
                          source.folder());
  }
  KeepSample(options.sample, &chosen);
  BLOCKSCALE_RETURN_IF_ERROR(
      Collect(CheckMatrices(chosen.size(), options,
                            [&](size_t i, std::vector<VerifyFailure>* failures) {
                              return CheckRecoded(source, *chosen[i].first, converted,
                                                  *chosen[i].second, failures);
                            }),
              report));
  BLOCKSCALE_RETURN_IF_ERROR(
      CheckUnchanged(source, converted, pairs, &report.failures, &report.kept_checked));
  CheckRecodedConfig(source, converted, pairs, &report.failures);
  BLOCKSCALE_RETURN_IF_ERROR(CheckSideFiles(source, converted, &report.failures));
  return report;
}

}  // namespace

Result<VerifyReport> VerifyCheckpointOn(FileSystem& files, const VerifyOptions& options) {
  BLOCKSCALE_ASSIGN_OR_RETURN(const Match match, ParseMatch(options.match));
  BLOCKSCALE_ASSIGN_OR_RETURN(const Checkpoint source, Checkpoint::Open(files, options.source));
  std::vector<Finding> tolerated;  // CheckIndex finds these for itself
  BLOCKSCALE_ASSIGN_OR_RETURN(const Checkpoint converted,
                              Checkpoint::Open(files, options.converted, &tolerated));
  return IsFp8ToInt8(source, converted) ? VerifyFp8ToInt8(source, converted, options, match)
                                        : VerifyRecoded(source, converted, options, match);
}

Result<VerifyReport> VerifyCheckpoint(const VerifyOptions& options) {
  return VerifyCheckpointOn(PosixFileSystem(), options);
}

}  // namespace blockscale
