// Looks through the numbers of an FP8 matrix for what must not be there.
#pragma once

#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/fp8_matrix.h"

namespace blockscale {

// Findings of kind "scale" (not finite, negative, zero over codes that are not zero), "nan-codes"
// (count and first place) and "unreadable-shard" (reading failed).
std::vector<Finding> ScanMatrix(const Checkpoint& checkpoint, const Fp8Matrix& matrix);

}  // namespace blockscale
