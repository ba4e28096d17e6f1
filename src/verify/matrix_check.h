// One converted matrix against its source, element by element, in plain scalar code. Nothing here
// is shared with the converter: its own table of E4M3, its own pairing of weights with scales, its
// own walk over blocks, double precision where the converter has single.
#pragma once

#include <vector>

#include "base/status.h"
#include "blockscale/verify.h"
#include "checkpoint/checkpoint.h"
#include "verify/matrix_pair.h"

namespace blockscale {

// The limit of |W - q*s| in half steps of the row (s / 2). The factor allows for the rounding of
// W / s to FP32: 2^-18 where codes are largest, 7.7e-6 half steps.
inline constexpr double kHalfStepBound = 1.0 + 1e-5;

// The limit for code 127 where W lies beyond 127 s. Only the 127.5 range of compressed-tensors has
// such codes, and its s = fl32(absmax / 127.5) carries a relative rounding of up to 2^-24, so that
// absmax may lie 127.5 (1 + 2^-24) steps out: 1 + 255 * 2^-24 half steps from code 127.
inline constexpr double kClippedBound = 1.0 + 256 * 0x1p-24;

// The limit for all other pairs of schemes, which have fewer than 2^8 steps on one side of zero or
// are rounded straight from FP32.
inline constexpr double kRecodedBound = 1.0 + 2e-5;

// Checks every element against half a step of its row, and every row's scale against its largest
// value. Adds what does not hold to `failures`: at most one line for each kind of trouble, with its
// count and its first place. An error is one of reading. Reads about 1 MiB of each checkpoint at a
// time.
Result<MatrixQuality> CheckMatrix(const Checkpoint& source, const Checkpoint& converted,
                                  const MatrixPair& pair, std::vector<VerifyFailure>* failures);

}  // namespace blockscale
