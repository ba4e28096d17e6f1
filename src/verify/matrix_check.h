// One converted matrix against its source, element by element, in plain scalar code. Nothing here
// is shared with the converter: its own table of E4M3, its own pairing of weights with scales, its
// own walk over blocks, double precision where the converter has single.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "blockscale/verify.h"
#include "checkpoint/checkpoint.h"

namespace blockscale {

// An element may be off by half a step of its row; the factor allows for the rounding of the row's
// scale and of the quotient in FP32 (4e-6 was measured).
inline constexpr double kHalfStepBound = 1.0 + 1e-5;

// The two codes at the ends of the range stand for up to 127.5 steps, where those two roundings
// (2^-24 each, relative) weigh most: 2 * 127.5 * 2^-23 half steps.
inline constexpr double kEndCodeBound = 1.0 + 255 * 0x1p-23;

struct MatrixPair {
  TensorRef fp8, block_scale;  // in the source
  TensorRef int8, row_scale;   // in the converted checkpoint
  uint64_t rows = 0, columns = 0;
  uint64_t block_rows = 0, block_columns = 0;
  uint64_t grid_columns = 0;
};

// Pairs every F8_E4M3 tensor of the source with what the converted checkpoint made of it. What
// cannot be paired (no scale, a wrong grid, a missing or misshapen result) goes to `failures`.
std::vector<MatrixPair> PairMatrices(const Checkpoint& source, const Checkpoint& converted,
                                     std::vector<VerifyFailure>* failures);

// Adds what does not hold to `failures`: at most one line for each kind of trouble, with its count.
// An error is one of reading.
Result<MatrixQuality> CheckMatrix(const Checkpoint& source, const Checkpoint& converted,
                                  const MatrixPair& pair, std::vector<VerifyFailure>* failures);

}  // namespace blockscale
