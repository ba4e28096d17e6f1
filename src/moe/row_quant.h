// The rows that enter a matrix, as a RowScheme stores them: the definition that inputs are made by
// and that every backend re-quantises the intermediate with.
//
// Finite values: numeric/block_quant.h, with `ceil` for MXFP8 and `absmax` for the others.
// What is not finite:
//   bf16            goes on as it is
//   mxfp8           FlashInfer's device path: NaN becomes code +448 and does not touch its group's
//                   scale; a group with an infinity gets byte 0xFE, its infinities (of either sign)
//                   code +448, which is +infinity in FP32, and every finite neighbour 0; a group
//                   whose other values are all 0 gets byte 0
//   all others      the scale of its group becomes NaN, and with it all values that share it
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "moe/spec.h"
#include "numeric/block_quant.h"

namespace blockscale {

// The storage of a RowScheme in the words of the weights: element, scale, 1 x group.
QuantSpec RowSpecOf(RowScheme scheme);

// One tensor of rows. `scales` are stored as RowSpecOf says: E8M0 bytes, UE4M3 bytes or FP32.
struct ScaledRows {
  RowScheme scheme = RowScheme::kBf16;
  size_t rows = 0;
  size_t columns = 0;
  std::vector<std::byte> codes;
  std::vector<std::byte> scales;
  GlobalScale global;  // nvfp4: a multiplier

  size_t code_bytes() const { return RowSpecOf(scheme).row_bytes(columns); }
  size_t scale_bytes() const {
    const QuantSpec spec = RowSpecOf(scheme);
    return spec.grid_columns(columns) * spec.scale_bytes();
  }
};

// One row. `codes` and `scales` as above; `scales` unused for bf16.
void QuantiseRow(RowScheme scheme, const GlobalScale& global, const float* values, size_t columns,
                 std::byte* codes, std::byte* scales);

// All rows; `global` is nvfp4's, ignored by the others.
ScaledRows QuantiseRows(RowScheme scheme, const GlobalScale& global, const float* values,
                        size_t rows, size_t columns);

// One row back to FP32: infinities and NaN as above.
void DecodeRow(const ScaledRows& rows, size_t row, float* out);

}  // namespace blockscale
