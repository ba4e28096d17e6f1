// Looks through the numbers of quantised matrices for what must not be there, in chunks of 1 MiB
// whatever the width of a matrix; scale grids, which are small, are read whole (at most 64 MiB).
//
// Findings are of kind "scale", "nan-codes" (count and first place) and "unreadable-shard" (reading
// failed).
#pragma once

#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/fp8_matrix.h"

namespace blockscale {

// Codes that are NaN; scales that are not finite, are negative or zero (over codes that are not
// zero the finding says so: then the matrix cannot be converted).
std::vector<Finding> ScanMatrix(const Checkpoint& checkpoint, const Fp8Matrix& matrix);

// Codes that are NaN, of an F8_E4M3 tensor of any shape.
std::vector<Finding> ScanCodes(const Checkpoint& checkpoint, const TensorRef& codes);

// Scales that are not positive and finite, of F32, F16, BF16 or F8_E4M3, or the NaN of E8M0 bytes
// (U8 and F8_E8M0); other types are not looked into.
std::vector<Finding> ScanScales(const Checkpoint& checkpoint, const TensorRef& scales);

}  // namespace blockscale
