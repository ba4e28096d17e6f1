// FP8 (E4M3, block scales) to INT8 (one scale a row), the arithmetic of `blockscale convert`.
//
// For a matrix of `rows` x `columns` codes with one FP32 multiplier per block:
//   W[i][j] = fl32(e4m3(code[i][j]) * scale[i / block_rows][j / block_columns])
//   s[i]    = fl32(max_j |W[i][j]| / 127)                        (Int8Range::k127)
//   q[i][j] = clamp(round_half_even(fl32(W[i][j] / s[i])), -127, 127)
// and for an all-zero row q = 0, s = 1. Int8Range::k128 is compressed-tensors' own arithmetic:
// divisor 127.5, clamp to [-128, 127], s = 2^-23 for an all-zero row.
// fl32 rounds to the nearest FP32, ties to even. Every build and every instruction set gives these
// bits. Source: docs/formats.md, "FP8 blocks to INT8 rows".
#pragma once

#include <cstddef>
#include <cstdint>

namespace blockscale {

enum class Int8Range { k127 = 0, k128 = 1 };

// Some whole rows of an E4M3 matrix, inside the block grid of the whole matrix. Not owned.
struct Fp8Rows {
  const uint8_t* codes = nullptr;  // [rows][columns], rows `columns` apart
  size_t rows = 0;
  size_t columns = 0;
  size_t first_row = 0;           // of the whole matrix: decides each row's block
  const float* scales = nullptr;  // [ceil(matrix rows / block_rows)][grid_columns], whole matrix
  size_t grid_columns = 0;        // ceil(columns / block_columns)
  size_t block_rows = 0;          // >= 1
  size_t block_columns = 0;       // >= 1
};

// Where the result goes. Not owned; must not overlap the input.
struct Int8Rows {
  int8_t* codes = nullptr;      // [rows][columns]
  float* row_scales = nullptr;  // [rows]
};

// What one row lost. Sums run over fixed lanes of 32, so that every instruction set gives the same
// bits (see fp8_to_int8.cc).
struct RowQuality {
  float sum_squares = 0;         // of W / s, so that the range of FP32 is never left
  float sum_squared_errors = 0;  // of W / s - q
  float max_error = 0;           // max |W / s - q|, in quantisation steps (a half is the bound)
  bool zero = false;             // every code was +-0
};

// Why a row cannot be converted; `row` counts from Fp8Rows::codes, `column` is the first offender.
struct RowFault {
  enum class Kind {
    kNone,
    kNanCode,         // code 0x7F or 0xFF
    kZeroScale,       // a block scale of 0 over a code that is not +-0
    kOverflow,        // |W| is not finite
    kScaleUnderflow,  // s would be subnormal: the row's largest |W| is under 127 * 2^-126
  };
  Kind kind = Kind::kNone;
  size_t row = 0;
  size_t column = 0;
};

// Converts all rows with the best instruction set of this processor, or stops at the first row that
// cannot be converted (rows before it are done; its own output is unspecified). Scales must be
// finite and >= 0 (the caller has checked: a grid is small). `quality` may be null, else [rows].
RowFault ConvertFp8RowsToInt8(const Fp8Rows& in, Int8Range range, const Int8Rows& out,
                              RowQuality* quality);

// The same bits from plain scalar code: the reference that the fast one is tested against.
RowFault ConvertFp8RowsToInt8Scalar(const Fp8Rows& in, Int8Range range, const Int8Rows& out,
                                    RowQuality* quality);

// The instruction set that ConvertFp8RowsToInt8 uses, such as "AVX3_DL" or "AVX2".
const char* Fp8ToInt8Target();

}  // namespace blockscale
