// Converts a checkpoint from any scheme and spelling to any other by a recipe, streaming: peak
// memory does not depend on the size of model, shard or matrix, and a run that was killed can be
// resumed.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "blockscale/fp8_to_int8.h"
#include "blockscale/recipe.h"
#include "blockscale/status.h"
#include "blockscale/verify.h"

namespace blockscale {

// How --resume looks at shards that an earlier run finished.
enum class ResumeCheck {
  kFull = 0,    // their bytes' XXH3-128 equals the journal's
  kHeader = 1,  // size, names, types and shapes are as planned
};

struct ConvertProgress {
  uint64_t bytes_done = 0;  // of output tensor data, resumed shards included
  uint64_t bytes_total = 0;
  uint64_t shards_done = 0;
  uint64_t shards_total = 0;
  std::string finished_shard;  // not empty once for each shard that has just been journalled
};

struct ConvertOptions {
  std::string source;
  std::string output;
  Recipe recipe;                      // what becomes what; RecipeFor("int8-channel") for everything
  Int8Range range = Int8Range::k127;  // of int8-channel
  bool resume = false;
  ResumeCheck resume_check = ResumeCheck::kFull;
  unsigned threads = 0;     // 0: the machine's cores; at most 256
  uint64_t chunk_rows = 0;  // 0: by size; a chunk never exceeds 1 MiB of codes unless a row does
  std::function<void(const ConvertProgress&)> progress;  // called from one thread at a time
  const std::atomic<bool>* stop = nullptr;  // becomes true: stop soon, resumable (kCancelled)
};

// What a conversion will write, from config and headers alone.
struct ConvertPlanSummary {
  uint64_t matrices = 0;
  uint64_t kept_tensors = 0;
  uint64_t source_shards = 0;
  uint64_t output_shards = 0;
  uint64_t source_bytes = 0;  // tensor data
  uint64_t output_bytes = 0;  // tensor data, exact
  uint64_t file_bytes = 0;    // with headers
  uint64_t free_bytes = 0;    // on the output's file system
  bool fits = false;
  std::string dialect;                // of the result
  std::vector<std::string> warnings;  // about the recipe
};

// What one scheme would make of the matrices that the recipe converts.
struct SchemeCost {
  std::string scheme;
  std::string scale_rule;    // "" for plain ones
  uint64_t bytes = 0;        // of all of them: codes and scales, exact
  double relative_rmse = 0;  // predicted from a sample of their rows
};

struct ConvertSummary {
  ConvertPlanSummary plan;
  std::vector<MatrixQuality> matrices;  // as in conversion_report.json
  uint64_t shards_reused = 0;           // finished by an earlier run
  double seconds = 0;
};

// Writes nothing.
Result<ConvertPlanSummary> PlanConversion(const ConvertOptions& options);

// Every scheme and scale rule, from a sample of the real tensors: at most 32 matrices and 64 Ki
// elements of each. Writes nothing.
Result<std::vector<SchemeCost>> CompareSchemes(const ConvertOptions& options);

Result<ConvertSummary> ConvertCheckpoint(const ConvertOptions& options);

}  // namespace blockscale
