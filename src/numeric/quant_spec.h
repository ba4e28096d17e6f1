// One matrix's scheme with its own sizes: what FactsOf(scheme) says is usual, a checkpoint may vary
// (blocks of 32 for int4-group, scales of BF16 or E8M0 for fp8-block). Everything about where codes
// and scales of a row stand in memory follows from it.
//
// Codes are stored row by row. Formats of 4 bits hold the even column in the low half of a byte;
// a row of int4-group is filled up to whole 32-bit words, any other to whole bytes. Scales are a
// grid, row by row: [ceil(rows / block_rows)][ceil(columns / block_columns)].
#pragma once

#include <cstddef>
#include <cstdint>

#include "numeric/scheme.h"

namespace blockscale {

struct QuantSpec {
  Scheme scheme = Scheme::kF32;
  Format element = Format::kF32;
  Format scale = Format::kF32;  // unused without scales
  uint64_t block_rows = 0;      // 0: all rows
  uint64_t block_columns = 0;   // 0: all columns

  bool operator==(const QuantSpec&) const = default;

  bool has_scales() const { return HasScales(scheme); }
  bool has_global() const { return FactsOf(scheme).global; }
  uint64_t row_bytes(uint64_t columns) const {
    if (element == Format::kInt4) return (columns + 7) / 8 * 4;
    return (columns * static_cast<uint64_t>(BitsOf(element)) + 7) / 8;
  }
  uint64_t grid_rows(uint64_t rows) const {
    return !has_scales() ? 0 : block_rows == 0 ? 1 : (rows + block_rows - 1) / block_rows;
  }
  uint64_t grid_columns(uint64_t columns) const {
    return !has_scales()        ? 0
           : block_columns == 0 ? 1
                                : (columns + block_columns - 1) / block_columns;
  }
  uint64_t scale_bytes() const { return static_cast<uint64_t>(BitsOf(scale)) / 8; }
  // The row of the grid that a row of the matrix belongs to.
  uint64_t grid_row(uint64_t row) const { return block_rows == 0 ? 0 : row / block_rows; }
};

constexpr QuantSpec SpecOf(Scheme scheme) {
  const SchemeFacts facts = FactsOf(scheme);
  return {scheme, facts.element, facts.scale, facts.block_rows, facts.block_columns};
}

// The FP32 scale of a whole matrix. Which way it works is a tag and never a guess:
// compressed-tensors stores a divisor, ModelOpt a multiplier.
struct GlobalScale {
  enum class Kind { kNone, kMultiplier, kDivisor };
  Kind kind = Kind::kNone;
  float value = 1;

  // What the scale of a block comes to: fl32(scale * value) or fl32(scale / value).
  float Apply(float scale) const {
    return kind == Kind::kNone ? scale : kind == Kind::kMultiplier ? scale * value : scale / value;
  }
};

}  // namespace blockscale
