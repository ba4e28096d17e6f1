// Synthetic checkpoints: a family's real names, types, config and index over made-up numbers, the
// same bytes for the same seed on every machine.
//
// Weights are near-Gaussian (the sum of four uniform bytes, by integer arithmetic) in E4M3, with
// one element of +-448 in every block, as a real quantiser leaves it, and a scale of its own for
// each block. Scales of some matrices lie in another shard, as they do in real checkpoints.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "checkpoint/file_system.h"
#include "model/families.h"
#include "model/model_size.h"

namespace blockscale {

struct SynthOptions {
  Family family = Family::kMiniMaxM2;
  std::string output;  // a folder, new or empty
  ModelSize size;
  uint64_t shards = 3;
  uint64_t seed = 1;
  bool lie_about_total_size = false;  // 2 bytes an element, as M2.7's index says
  bool sparse = false;                // headers over files of zeros that take no room on disk
  std::function<void(uint64_t done, uint64_t total)> progress;  // bytes
};

struct SynthSummary {
  uint64_t tensors = 0;
  uint64_t fp8_matrices = 0;
  uint64_t matrices = 0;  // quantised in any scheme; stacked experts count as one
  uint64_t shards = 0;
  uint64_t data_bytes = 0;
};

// The real M2.7: its dimensions, 125 shards, its wrong total_size.
SynthOptions FullSize(SynthOptions options);

// "model-00002-of-00130.safetensors": of MiniMax-M2 counted from 0, and of a number that is too
// high (125 real files say 130), as it numbers them; of other families counted from 1.
std::string SynthShardName(Family family, uint64_t shard, uint64_t shards);

// Sizes, headers and (unless sparse) free space are checked before anything is written; a folder
// that is not empty is refused. Memory is the headers and 1 MiB a thread.
Result<SynthSummary> SynthesizeCheckpoint(FileSystem& files, const SynthOptions& options);

}  // namespace blockscale
