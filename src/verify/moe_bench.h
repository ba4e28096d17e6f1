// How fast a backend runs a layer, in the terms in which it is limited: bytes of weights and
// operations.
#pragma once

#include <vector>

#include "moe/backend.h"

namespace blockscale {

struct BenchPoint {
  size_t tokens = 0;
  double seconds = 0;  // median
  double best_seconds = 0;
  size_t runs = 0;
  double slots_per_expert = 0;  // of the experts that were chosen
  double bytes_per_second = 0;  // packed weights of the chosen experts, each counted once
  double flops_per_second = 0;  // 2 * 3 * hidden * intermediate a slot (gated; 2 * 2 otherwise)
  RunInfo info;
};

struct BenchOptions {
  std::vector<size_t> tokens = {1, 8, 32, 128};
  double seconds = 1;  // a point, at least; and at least 5 runs
  uint64_t seed = 1;
};

// Every slot goes to an expert of this rank, distinct within a token. From run to run a token
// chooses other experts in turn, so that one token's weights come from memory and not from a cache.
Result<std::vector<BenchPoint>> BenchLayer(const MoeSpec& spec, const Backend& backend,
                                           const LayerWeights& weights,
                                           const BenchOptions& options);

}  // namespace blockscale
