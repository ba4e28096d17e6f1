// One layer of a checkpoint, run once: tokens in, a safetensors file out.
#pragma once

#include <optional>
#include <string>

#include "checkpoint/file_system.h"
#include "moe/backend.h"

namespace blockscale {

struct RunLayerOptions {
  std::string checkpoint;
  uint64_t layer = 0;
  // A safetensors file: `hidden_states` [tokens, hidden] (F32 or BF16), `topk_ids` [tokens, top_k]
  // I32 and `topk_weights` likewise F32. "" for made-up ones:
  std::string tokens;
  uint64_t random = 0;  // how many
  uint64_t seed = 1;
  std::string output;  // file
  std::string backend = "cpu";
  bool experts_on_disk = false;  // read only the experts that the tokens chose
  // The output of another run of the same tokens, such as that of the source before a conversion.
  std::string compare;
};

struct RunLayerReport {
  MoeSpec spec;
  RunInfo info;
  size_t tokens = 0;
  size_t experts_read = 0;
  size_t prepared_bytes = 0;
  double load_seconds = 0;
  double run_seconds = 0;               // the best of three runs
  std::optional<double> relative_rmse;  // ||output - other|| / ||other||
};

// Writes `output` [tokens, hidden] (as the spec says, BF16), and the `topk_ids` and `topk_weights`
// that were used. Refuses tokens of another width, ids out of range, an output file that is there,
// another run of other tokens.
Result<RunLayerReport> RunLayer(FileSystem& files, const RunLayerOptions& options);

}  // namespace blockscale
