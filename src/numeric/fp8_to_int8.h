// What the scalar and the SIMD side of blockscale/fp8_to_int8.h share: tables, the row scale, and
// the order of sums. Both sides call these, so that their bits agree by construction.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "blockscale/fp8_to_int8.h"

namespace blockscale::fp8_to_int8 {

inline constexpr uint8_t kMagnitude = 0x7F;  // of a code: all but its sign
inline constexpr uint8_t kNanMagnitude = 0x7F;

// Sums run over this many lanes (lane = column % kLanes) ...
inline constexpr size_t kLanes = 32;
// ... and are folded into double after so many columns, before FP32 loses small addends.
inline constexpr size_t kSegment = 4096;

// The magnitude of every code, index = code & 0x7F; entry 0x7F (NaN) is never used.
extern const std::array<float, 128> kMagnitudes;

// The multipliers of the blocks of row `row` (counted from in.codes): [grid_columns].
inline const float* ScaleRow(const Fp8Rows& in, size_t row) {
  return in.scales + (in.first_row + row) / in.block_rows * in.grid_columns;
}

// s of a row whose largest |W| is `largest`.
inline float RowScale(float largest, Int8Range range) {
  if (largest > 0) return largest / (range == Int8Range::k127 ? 127.0f : 127.5f);
  return range == Int8Range::k127 ? 1.0f : std::numeric_limits<float>::epsilon();
}

// Folds the lanes in halves: lane i gains lane i + width / 2, until one is left.
float FoldLanes(std::array<float, kLanes> lanes);

// What becomes of a row of +-0 only.
void StoreZeroRow(const Fp8Rows& in, size_t row, Int8Range range, const Int8Rows& out,
                  RowQuality* quality);

// One row by the definition. `row` is its index in `in`. Returns a fault or writes row `row` of
// `out` and of `quality` (which may be null).
RowFault ConvertRow(const Fp8Rows& in, size_t row, Int8Range range, const Int8Rows& out,
                    RowQuality* quality);

}  // namespace blockscale::fp8_to_int8
