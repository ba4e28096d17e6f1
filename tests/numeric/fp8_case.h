// A matrix for the FP8-to-INT8 kernel and what came out of it, with poison and guard bytes around
// the output, for the tests of all its instruction sets.
//
// Whoever includes this sees every target: Highway names AVX3_DL only to those that ask for it.
#pragma once

#define HWY_WANT_AVX3_DL 1
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <bit>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "blockscale/fp8_to_int8.h"

namespace blockscale::testing {

// Owns everything that Fp8Rows points to. The whole matrix; a view of some rows by Rows().
struct Fp8Case {
  size_t rows = 0, columns = 0, block_rows = 128, block_columns = 128;
  std::vector<uint8_t> codes;
  std::vector<float> scales;

  Fp8Case(size_t rows_, size_t columns_, size_t block_rows_, size_t block_columns_)
      : rows(rows_), columns(columns_), block_rows(block_rows_), block_columns(block_columns_) {
    codes.resize(rows * columns);
    scales.assign((rows + block_rows - 1) / block_rows * GridColumns(), 1.0f);
  }

  size_t GridColumns() const { return (columns + block_columns - 1) / block_columns; }
  uint8_t& Code(size_t row, size_t column) { return codes[row * columns + column]; }
  float& Scale(size_t row, size_t column) {
    return scales[row / block_rows * GridColumns() + column / block_columns];
  }
  Fp8Rows Rows(size_t first, size_t count) const {
    return {codes.data() + first * columns,
            count,
            columns,
            first,
            scales.data(),
            GridColumns(),
            block_rows,
            block_columns};
  }
};

struct Int8Result {
  RowFault fault;
  std::vector<int8_t> codes;
  std::vector<float> row_scales;
  std::vector<RowQuality> quality;  // empty if it was not asked for
};

using Converter = RowFault (*)(const Fp8Rows&, Int8Range, const Int8Rows&, RowQuality*);

constexpr size_t kGuard = 64;
constexpr int8_t kPoison = 0x5A;

// Converts rows [first, first + count) into poisoned memory and looks at the bytes around it.
// The output begins `shift` bytes after a multiple of 64.
inline Int8Result Convert(Converter convert, const Fp8Case& matrix, Int8Range range, bool quality,
                          size_t first, size_t count, size_t shift = 0) {
  const size_t bytes = count * matrix.columns;
  std::vector<int8_t> memory(bytes + 3 * kGuard + shift, kPoison);
  int8_t* out = memory.data() + kGuard;
  out += (64 - reinterpret_cast<uintptr_t>(out) % 64) % 64 + shift;
  Int8Result result;
  result.row_scales.assign(count + 1, -7.0f);
  if (quality) result.quality.assign(count + 1, {.max_error = -7.0f});
  const std::vector<uint8_t> before = matrix.codes;
  result.fault = convert(matrix.Rows(first, count), range, {out, result.row_scales.data()},
                         quality ? result.quality.data() : nullptr);
  EXPECT_EQ(before, matrix.codes) << "the input was written to";
  for (const int8_t* byte = memory.data(); byte < memory.data() + memory.size(); ++byte)
    if (byte < out || byte >= out + bytes) {
      EXPECT_EQ(*byte, kPoison) << "written " << byte - out << " of " << bytes;
      if (*byte != kPoison) break;
    }
  EXPECT_EQ(result.row_scales.back(), -7.0f) << "a row scale too many";
  result.row_scales.pop_back();
  if (quality) {
    EXPECT_EQ(result.quality.back().max_error, -7.0f) << "a row's quality too many";
    result.quality.pop_back();
  }
  result.codes.assign(out, out + bytes);
  return result;
}

inline Int8Result Convert(Converter convert, const Fp8Case& matrix, Int8Range range, bool quality) {
  return Convert(convert, matrix, range, quality, 0, matrix.rows);
}

// Bit for bit the same, in the first `rows` rows.
inline void ExpectSame(const Int8Result& one, const Int8Result& two, size_t columns, size_t rows) {
  EXPECT_EQ(one.fault.kind, two.fault.kind);
  EXPECT_EQ(one.fault.row, two.fault.row);
  EXPECT_EQ(one.fault.column, two.fault.column);
  for (size_t i = 0; i < rows * columns; ++i)
    ASSERT_EQ(int{one.codes[i]}, int{two.codes[i]})
        << "row " << i / columns << " column " << i % columns;
  const auto bits = [](float value) { return std::bit_cast<uint32_t>(value); };
  for (size_t row = 0; row < rows; ++row) {
    ASSERT_EQ(bits(one.row_scales[row]), bits(two.row_scales[row])) << "row " << row;
    if (one.quality.empty() || two.quality.empty()) continue;
    const RowQuality &a = one.quality[row], &b = two.quality[row];
    ASSERT_EQ(bits(a.sum_squares), bits(b.sum_squares)) << "row " << row;
    ASSERT_EQ(bits(a.sum_squared_errors), bits(b.sum_squared_errors)) << "row " << row;
    ASSERT_EQ(bits(a.max_error), bits(b.max_error)) << "row " << row;
    ASSERT_EQ(a.zero, b.zero) << "row " << row;
  }
}

// Every instruction set that this library holds and this processor has, worst last.
inline std::vector<int64_t> AvailableTargets() { return hwy::SupportedAndGeneratedTargets(); }

// ConvertFp8RowsToInt8 with one instruction set alone, and proof that it was that one.
class ForcedTarget {
 public:
  explicit ForcedTarget(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    EXPECT_STREQ(Fp8ToInt8Target(), hwy::TargetName(target));
  }
  ~ForcedTarget() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  ForcedTarget(const ForcedTarget&) = delete;
  ForcedTarget& operator=(const ForcedTarget&) = delete;
};

// Codes with every magnitude but NaN, each sign; `largest` bounds the magnitude's code.
inline void FillCodes(Fp8Case& matrix, std::mt19937& random, uint8_t largest = 0x7E) {
  std::uniform_int_distribution<int> magnitude(0, largest), sign(0, 1);
  for (uint8_t& code : matrix.codes)
    code = static_cast<uint8_t>(magnitude(random) | sign(random) << 7);
}

}  // namespace blockscale::testing
