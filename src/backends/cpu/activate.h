// From FC1's sums to the row that FC2 takes, for a few columns of one token.
#pragma once

#include <cstddef>

#include "moe/spec.h"

namespace blockscale::cpu {

struct ActivateJob {
  ActivationKind kind = ActivationKind::kSwiGlu;
  IntermediateRecipe recipe = IntermediateRecipe::kFlashInferCutlass;
  ActivationValues parameters{};
  float slot_weight = 1;             // deepgemm-mega multiplies by it
  const float* gate_bias = nullptr;  // [count], or null
  const float* up_bias = nullptr;
};

// `gate` and `up` (unused when not gated) are FP32 sums of `count` columns; `out` gets h before its
// re-quantisation. Roundings as IntermediateRecipe says. Exp and tanh are good to 4 units of 2^-24.
void Activate(const ActivateJob& job, const float* gate, const float* up, size_t count, float* out);

// Nearest BF16, in place.
void RoundToBf16(float* values, size_t count);

}  // namespace blockscale::cpu
