#include "blockscale/fp8_to_int8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "numeric/fp8_case.h"
#include "numeric/minifloat.h"

namespace blockscale {
namespace {

using testing::Convert;
using testing::ExpectSame;
using testing::FillCodes;
using testing::ForcedTarget;
using testing::Fp8Case;
using testing::Int8Result;

// Runs `check` with each instruction set of this processor, and at least one with a fast path where
// the processor has one.
void ForEachTarget(const std::function<void()>& check) {
  const auto targets = testing::AvailableTargets();
  ASSERT_FALSE(targets.empty());
  for (int64_t target : targets) {
    SCOPED_TRACE(hwy::TargetName(target));
    const ForcedTarget forced(target);
    check();
  }
}

// Every target gives the scalar side's bits, with and without quality, in both ranges.
void ExpectAllAgree(const Fp8Case& matrix) {
  for (Int8Range range : {Int8Range::k127, Int8Range::k128}) {
    SCOPED_TRACE(range == Int8Range::k127 ? "127" : "128");
    const Int8Result scalar = Convert(ConvertFp8RowsToInt8Scalar, matrix, range, true);
    ASSERT_EQ(scalar.fault.kind, RowFault::Kind::kNone);
    ForEachTarget([&] {
      for (bool quality : {false, true})
        ExpectSame(Convert(ConvertFp8RowsToInt8, matrix, range, quality), scalar, matrix.columns,
                   matrix.rows);
    });
  }
}

Fp8Case GoldenCase(nlohmann::json* golden) {
  std::ifstream file(BLOCKSCALE_GOLDEN "/fp8_block_to_int8.json");
  *golden = nlohmann::json::parse(file);
  const auto& codes = golden->at("codes");
  Fp8Case matrix(codes.size(), codes[0].size(), 128, 128);
  for (size_t row = 0; row < matrix.rows; ++row)
    for (size_t column = 0; column < matrix.columns; ++column)
      matrix.Code(row, column) = codes[row][column];
  const auto& scales = golden->at("block_scale_bits");
  for (size_t i = 0; i < matrix.scales.size(); ++i)
    matrix.scales[i] = std::bit_cast<float>(
        scales[i / matrix.GridColumns()][i % matrix.GridColumns()].get<uint32_t>());
  return matrix;
}

TEST(Fp8ToInt8, GivesWhatNumpyGave) {
  nlohmann::json golden;
  const Fp8Case matrix = GoldenCase(&golden);
  ASSERT_EQ(matrix.rows, 200u);
  ASSERT_EQ(matrix.columns, 300u);
  Int8Result expected;
  for (const auto& row : golden.at("int8"))
    for (int code : row) expected.codes.push_back(static_cast<int8_t>(code));
  for (uint32_t bits : golden.at("row_scale_bits"))
    expected.row_scales.push_back(std::bit_cast<float>(bits));
  ExpectSame(Convert(ConvertFp8RowsToInt8Scalar, matrix, Int8Range::k127, false), expected,
             matrix.columns, matrix.rows);
  ForEachTarget([&] {
    ExpectSame(Convert(ConvertFp8RowsToInt8, matrix, Int8Range::k127, false), expected,
               matrix.columns, matrix.rows);
  });
}

TEST(Fp8ToInt8, NamesTheBestTargetOfThisProcessor) {
  const auto targets = testing::AvailableTargets();
  EXPECT_STREQ(Fp8ToInt8Target(), hwy::TargetName(targets.front()));
}

// The definition once more, in double where that cannot matter.
void ExpectDefinition(Fp8Case& matrix, Int8Range range, const Int8Result& result) {
  const float divisor = range == Int8Range::k127 ? 127.0f : 127.5f;
  const float low = range == Int8Range::k127 ? -127.0f : -128.0f;
  for (size_t row = 0; row < matrix.rows; ++row) {
    std::vector<float> values(matrix.columns);
    float largest = 0;
    for (size_t column = 0; column < matrix.columns; ++column) {
      values[column] = E4M3::Decode(matrix.Code(row, column)) * matrix.Scale(row, column);
      largest = std::max(largest, std::fabs(values[column]));
    }
    const float scale = largest / divisor;
    ASSERT_EQ(result.row_scales[row], scale) << row;
    double squares = 0, errors = 0;
    float max_error = 0;
    for (size_t column = 0; column < matrix.columns; ++column) {
      const float x = values[column] / scale;
      const float q = std::fmin(std::fmax(std::nearbyint(x), low), 127.0f);
      ASSERT_EQ(static_cast<float>(result.codes[row * matrix.columns + column]), q)
          << row << " " << column;
      squares += double{x} * x;
      errors += (double{x} - q) * (double{x} - q);
      max_error = std::max(max_error, std::fabs(x - q));
    }
    EXPECT_NEAR(result.quality[row].sum_squares, squares, 1e-5 * squares);
    EXPECT_NEAR(result.quality[row].sum_squared_errors, errors, 1e-5 * errors);
    EXPECT_EQ(result.quality[row].max_error, max_error);
    EXPECT_FALSE(result.quality[row].zero);
  }
}

TEST(Fp8ToInt8, ScalarIsTheDefinition) {
  std::mt19937 random(1);
  Fp8Case matrix(20, 5000, 8, 96);
  FillCodes(matrix, random);
  std::uniform_real_distribution<float> scale(1e-4f, 1e-2f);
  for (float& value : matrix.scales) value = scale(random);
  for (Int8Range range : {Int8Range::k127, Int8Range::k128})
    ExpectDefinition(matrix, range, Convert(ConvertFp8RowsToInt8Scalar, matrix, range, true));
}

// Rows and columns of all kinds: multiples of the block or not, shorter than a vector, one block
// for the whole matrix, blocks that no vector fits, more blocks than go at once, long rows whose
// sums are folded.
TEST(Fp8ToInt8, EveryShapeOnEveryTarget) {
  struct Shape {
    size_t rows, columns, block_rows, block_columns;
  };
  std::mt19937 random(2);
  for (const Shape& shape : std::vector<Shape>{
           {3, 1, 128, 128},     {5, 31, 2, 128},     {4, 127, 128, 128},  {1, 128, 128, 128},
           {9, 300, 4, 128},     {7, 576, 3, 128},    {2, 2112, 128, 128}, {3, 640, 2, 32},
           {3, 640, 2, 64},      {3, 700, 2, 96},     {3, 700, 2, 160},    {3, 300, 1, 300},
           {4, 333, 4, 1000},    {3, 200, 2, 16},     {3, 50, 1, 1},       {3, 130, 5, 7},
           {2, 9000, 128, 128},  {2, 8192, 1, 128},   {2, 4127, 2, 4127},  {2, 20000, 2, 20000},
           {130, 257, 128, 128}, {3, 12345, 2, 4096}, {0, 128, 128, 128},  {2, 16384, 1, 8192}}) {
    SCOPED_TRACE(::testing::Message() << shape.rows << "x" << shape.columns << " in "
                                      << shape.block_rows << "x" << shape.block_columns);
    Fp8Case matrix(shape.rows, shape.columns, shape.block_rows, shape.block_columns);
    FillCodes(matrix, random);
    std::uniform_real_distribution<float> exponent(-14, -6);
    for (float& value : matrix.scales) value = std::exp2(exponent(random));
    ExpectAllAgree(matrix);
  }
}

// Blocks whose largest codes differ: whole tables, parts of tables from each first code, zeros.
TEST(Fp8ToInt8, EveryLargestCode) {
  std::mt19937 random(3);
  Fp8Case matrix(0x7E * 4, 512, 1, 128);
  FillCodes(matrix, random, 0x7E);
  for (size_t row = 0; row < matrix.rows; ++row) {
    const int top = static_cast<int>(row / 4) + 1;
    for (size_t column = 0; column < matrix.columns; ++column) {
      // Blocks 0 and 2 hold codes up to `top`, block 1 all codes in every second row, block 3 none.
      uint8_t& code = matrix.Code(row, column);
      const size_t block = column / 128;
      if (block == 3 || (block == 1 && row % 2 == 0)) code &= 0x80;
      if (block == 0 || block == 2)
        code = static_cast<uint8_t>((code & 0x80) | (code & 0x7F) % (top + 1));
    }
    matrix.Code(row, 7) = static_cast<uint8_t>(top);
    for (size_t block = 0; block < 4; ++block)
      matrix.Scale(row, 128 * block) = std::ldexp(1.0f + 0.01f * static_cast<float>(random() % 90),
                                                  static_cast<int>(random() % 9) - 4);
  }
  ExpectAllAgree(matrix);
}

// Powers of two and odd values over the whole range of FP32, alone and mixed in one row.
TEST(Fp8ToInt8, EveryScaleExponent) {
  std::mt19937 random(4);
  for (int exponent = -149; exponent <= 119; ++exponent) {
    SCOPED_TRACE(exponent);
    for (float mantissa : {1.0f, 1.0f + 0x1p-23f, 1.337f, 2.0f - 0x1p-23f}) {
      Fp8Case matrix(3, 160, 1, 64);
      FillCodes(matrix, random, exponent > 117 ? 0x77 : 0x7E);
      for (float& value : matrix.scales) value = std::ldexp(mantissa, exponent);
      const Int8Result scalar = Convert(ConvertFp8RowsToInt8Scalar, matrix, Int8Range::k127, true);
      ForEachTarget([&] {
        const size_t rows = scalar.fault.kind == RowFault::Kind::kNone ? 3 : scalar.fault.row;
        ExpectSame(Convert(ConvertFp8RowsToInt8, matrix, Int8Range::k127, true), scalar,
                   matrix.columns, rows);
      });
      if (exponent >= -120 && exponent <= 117) {
        EXPECT_EQ(scalar.fault.kind, RowFault::Kind::kNone);
      }
    }
  }
}

TEST(Fp8ToInt8, ScalesFarApartInOneRow) {
  std::mt19937 random(5);
  std::uniform_int_distribution<int> exponent(-149, 118), narrow(-52, 52);
  for (int round = 0; round < 60; ++round) {
    Fp8Case matrix(6, 448, 1, 64);
    FillCodes(matrix, random);
    for (float& value : matrix.scales)
      value = std::ldexp(1.0f + 1e-7f * static_cast<float>(random() % 10000000),
                         round % 2 == 0 ? exponent(random) : narrow(random));
    // One ordinary block at least, so that no row is beyond FP32.
    for (size_t row = 0; row < matrix.rows; ++row) matrix.Code(row, 0) = 0x38;
    for (size_t row = 0; row < matrix.rows; ++row) matrix.Scale(row, 0) = 0x1p10f;
    ExpectAllAgree(matrix);
  }
}

// An element at half its row's largest lies exactly between two codes: 127 / 2 = 63.5 goes to 64.
TEST(Fp8ToInt8, ExactTiesGoToEven) {
  Fp8Case matrix(2, 256, 128, 128);
  for (size_t column = 0; column < 256; ++column) {
    const int sign = column % 2 == 0 ? 0 : 0x80;
    matrix.Code(0, column) = static_cast<uint8_t>(sign | (column < 8 ? 0x78 : 0x70));
    // 127 = 1.984375 * 64 has no E4M3 code, but halves of any largest are ties.
    matrix.Code(1, column) = static_cast<uint8_t>(sign | (column < 8 ? 0x7E : 0x76));
  }
  ExpectAllAgree(matrix);
  ForEachTarget([&] {
    const Int8Result result = Convert(ConvertFp8RowsToInt8, matrix, Int8Range::k127, true);
    for (size_t i = 0; i < result.codes.size(); ++i) {
      const int expected = i % 256 < 8 ? 127 : 64;
      ASSERT_EQ(int{result.codes[i]}, i % 2 == 0 ? expected : -expected) << i;
    }
    EXPECT_EQ(result.quality[0].max_error, 0.5f);
  });
}

// The largest element becomes 127.5 before it is rounded, or, as FP32 has it, a little less.
TEST(Fp8ToInt8, TheWiderRangeHas128OnlyWithAMinus) {
  Fp8Case matrix(8, 128, 1, 128);
  for (size_t row = 0; row < 8; ++row)
    for (size_t column = 0; column < 128; ++column)
      matrix.Code(row, column) = static_cast<uint8_t>((column % 2 == 0 ? 0x70 : 0xF0) + row);
  ExpectAllAgree(matrix);
  ForEachTarget([&] {
    const Int8Result result = Convert(ConvertFp8RowsToInt8, matrix, Int8Range::k128, false);
    int with_128 = 0;
    for (size_t row = 0; row < 8; ++row) {
      const float largest = 128.0f + 16.0f * static_cast<float>(row);
      EXPECT_EQ(result.row_scales[row], largest / 127.5f);
      const bool reaches = largest / (largest / 127.5f) >= 127.5f;
      with_128 += reaches;
      EXPECT_EQ(int{result.codes[row * 128]}, 127);
      EXPECT_EQ(int{result.codes[row * 128 + 1]}, reaches ? -128 : -127);
    }
    EXPECT_GT(with_128, 0);
  });
}

TEST(Fp8ToInt8, ZeroRowsOfEitherSign) {
  std::mt19937 random(6);
  Fp8Case matrix(7, 300, 1, 128);
  FillCodes(matrix, random);
  for (size_t column = 0; column < 300; ++column) {
    matrix.Code(0, column) = 0;
    matrix.Code(3, column) = 0x80;
    matrix.Code(4, column) = column % 3 == 0 ? 0x80 : 0;
    matrix.Code(6, column) = 0x80;
  }
  // Scales of blocks without values do not matter, not even 0 or the largest.
  for (size_t column : {0, 128, 256}) matrix.Scale(3, column) = 0.0f;
  matrix.Scale(4, 128) = std::numeric_limits<float>::max();
  ExpectAllAgree(matrix);
  ForEachTarget([&] {
    for (Int8Range range : {Int8Range::k127, Int8Range::k128}) {
      const Int8Result result = Convert(ConvertFp8RowsToInt8, matrix, range, true);
      for (size_t row : {0, 3, 4, 6}) {
        EXPECT_EQ(result.row_scales[row], range == Int8Range::k127 ? 1.0f : 0x1p-23f);
        EXPECT_TRUE(result.quality[row].zero);
        EXPECT_EQ(result.quality[row].max_error, 0.0f);
        for (size_t column = 0; column < 300; ++column)
          ASSERT_EQ(int{result.codes[row * 300 + column]}, 0);
      }
      EXPECT_FALSE(result.quality[1].zero);
    }
  });
}

TEST(Fp8ToInt8, AZeroScaleOverZerosIsFine) {
  std::mt19937 random(8);
  Fp8Case matrix(4, 512, 2, 128);
  FillCodes(matrix, random);
  for (size_t row = 0; row < 4; ++row)
    for (size_t column = 128; column < 256; ++column) matrix.Code(row, column) &= 0x80;
  for (float scale : {0.0f, 0x1p-149f, std::numeric_limits<float>::max()}) {
    matrix.Scale(0, 128) = matrix.Scale(2, 128) = scale;
    ExpectAllAgree(matrix);
  }
}

// Rows in chunks give the bits of all rows at once, wherever a chunk begins inside a block.
TEST(Fp8ToInt8, ChunksOfRowsGiveTheWhole) {
  std::mt19937 random(9);
  Fp8Case matrix(41, 300, 8, 128);
  FillCodes(matrix, random);
  std::uniform_real_distribution<float> scale(1e-4f, 1e-2f);
  for (float& value : matrix.scales) value = scale(random);
  ForEachTarget([&] {
    const Int8Result whole = Convert(ConvertFp8RowsToInt8, matrix, Int8Range::k127, true);
    for (size_t chunk : {1, 2, 3, 7, 8, 40}) {
      Int8Result joined;
      for (size_t first = 0; first < matrix.rows; first += chunk) {
        const size_t count = std::min(chunk, matrix.rows - first);
        const Int8Result part =
            Convert(ConvertFp8RowsToInt8, matrix, Int8Range::k127, true, first, count);
        joined.codes.insert(joined.codes.end(), part.codes.begin(), part.codes.end());
        joined.row_scales.insert(joined.row_scales.end(), part.row_scales.begin(),
                                 part.row_scales.end());
        joined.quality.insert(joined.quality.end(), part.quality.begin(), part.quality.end());
      }
      ExpectSame(joined, whole, matrix.columns, matrix.rows);
    }
  });
}

// Large results take a way past the caches; aligned or not, they are the same.
TEST(Fp8ToInt8, LargeResultsAreTheSame) {
  std::mt19937 random(10);
  Fp8Case matrix(1030, 16384, 128, 128);  // just above 16 MiB
  FillCodes(matrix, random);
  std::uniform_real_distribution<float> scale(1e-4f, 1e-2f);
  for (float& value : matrix.scales) value = scale(random);
  for (uint8_t& code : matrix.codes)
    if ((code & 0x7F) == 0x7E && random() % 8 != 0) code = 0x31;
  const Int8Result scalar = Convert(ConvertFp8RowsToInt8Scalar, matrix, Int8Range::k127, true);
  for (int64_t target : testing::AvailableTargets()) {
    if (target > HWY_AVX2) continue;  // the rest is the scalar side itself, and slow
    SCOPED_TRACE(hwy::TargetName(target));
    const ForcedTarget forced(target);
    for (size_t shift : {0, 1})
      ExpectSame(
          Convert(ConvertFp8RowsToInt8, matrix, Int8Range::k127, shift == 0, 0, matrix.rows, shift),
          scalar, matrix.columns, matrix.rows);
  }
}

}  // namespace
}  // namespace blockscale
