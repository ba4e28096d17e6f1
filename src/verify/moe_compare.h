// A layer's output against what the oracle allows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "moe/backend.h"

namespace blockscale {

struct Comparison {
  bool passed = false;
  // |x - value| / (the allowed distance on that side), the largest, and where; above 1 is wrong.
  // Infinite where nothing but `value` is right.
  double worst = 0;
  size_t token = 0, column = 0;
  double got = 0, value = 0, low = 0, high = 0;
  uint64_t outside = 0;      // elements
  uint64_t wrong_rows = 0;   // finite on one side, not finite on the other
  uint64_t broken_rows = 0;  // not finite on either side, as they must be
  double nrmse = 0;          // ||x - value|| / ||value|| over finite rows; 0 when both are 0
  double cosine = 1;
  std::string message;  // why not passed: one line
};

// `output` is [tokens][hidden] of spec.output.
Comparison CompareOutput(const MoeSpec& spec, const Expected& expected, const std::byte* output);

}  // namespace blockscale
