// What the kernel says about rows that cannot be converted: the same from every instruction set.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "blockscale/fp8_to_int8.h"
#include "numeric/fp8_case.h"

namespace blockscale {
namespace {

using testing::Convert;
using testing::ExpectSame;
using testing::ForcedTarget;
using testing::Fp8Case;
using testing::Int8Result;
using Kind = RowFault::Kind;

Fp8Case Ordinary() {
  std::mt19937 random(1);
  Fp8Case matrix(20, 448, 4, 128);
  testing::FillCodes(matrix, random);
  for (float& scale : matrix.scales) scale = 0.01f;
  return matrix;
}

void ExpectFault(const Fp8Case& matrix, Kind kind, size_t row, size_t column) {
  for (Int8Range range : {Int8Range::k127, Int8Range::k128}) {
    const Int8Result scalar = Convert(ConvertFp8RowsToInt8Scalar, matrix, range, true);
    EXPECT_EQ(scalar.fault.kind, kind);
    EXPECT_EQ(scalar.fault.row, row);
    EXPECT_EQ(scalar.fault.column, column);
    for (int64_t target : testing::AvailableTargets()) {
      SCOPED_TRACE(hwy::TargetName(target));
      const ForcedTarget forced(target);
      // Rows before the fault are done.
      ExpectSame(Convert(ConvertFp8RowsToInt8, matrix, range, true), scalar, matrix.columns, row);
    }
  }
}

TEST(Fp8ToInt8Faults, NanCodesOfEitherSignWhereverTheyStand) {
  for (uint8_t nan : {0x7F, 0xFF})
    for (size_t row : {0, 1, 2, 3, 7, 19})
      for (size_t column : {0, 63, 64, 127, 128, 300, 383, 384, 447}) {
        Fp8Case matrix = Ordinary();
        matrix.Code(row, column) = nan;
        if (column + 1 < matrix.columns) matrix.Code(row, column + 1) = nan;
        if (row + 1 < matrix.rows) matrix.Code(row + 1, 0) = nan;
        ExpectFault(matrix, Kind::kNanCode, row, column);
      }
}

TEST(Fp8ToInt8Faults, ANanCodeUnderAScaleOfZeroIsStillANan) {
  Fp8Case matrix = Ordinary();
  for (size_t row = 4; row < 8; ++row)
    for (size_t column = 128; column < 256; ++column) matrix.Code(row, column) = 0;
  matrix.Scale(4, 128) = 0;
  matrix.Code(6, 200) = 0x7F;
  ExpectFault(matrix, Kind::kNanCode, 6, 200);
}

TEST(Fp8ToInt8Faults, AScaleOfZeroOverAValue) {
  for (float zero : {0.0f, -0.0f}) {
    Fp8Case matrix = Ordinary();
    for (size_t row = 4; row < 8; ++row)
      for (size_t column = 128; column < 256; ++column) matrix.Code(row, column) = 0x80;
    matrix.Scale(4, 128) = zero;
    matrix.Code(5, 131) = 0x81;  // the smallest value of all
    matrix.Code(5, 140) = 0x7E;
    ExpectFault(matrix, Kind::kZeroScale, 5, 131);
  }
}

TEST(Fp8ToInt8Faults, AProductBeyondFp32) {
  Fp8Case matrix = Ordinary();
  for (size_t row = 8; row < 12; ++row)
    for (size_t column = 256; column < 384; ++column) matrix.Code(row, column) = 0x38;  // 1
  matrix.Scale(8, 256) = 0x1p120f;
  matrix.Code(9, 300) = 0x7E;  // 448 * 2^120 = 1.75 * 2^128
  matrix.Code(10, 256) = 0x7E;
  ExpectFault(matrix, Kind::kOverflow, 9, 300);
}

TEST(Fp8ToInt8Faults, ThePlaceOfTheFirstFaultOfARowWhateverItsKind) {
  Fp8Case matrix = Ordinary();
  matrix.Scale(4, 128) = 0;
  matrix.Code(4, 128) = 0x11;
  matrix.Code(4, 447) = 0x7F;
  ExpectFault(matrix, Kind::kZeroScale, 4, 128);
  matrix.Code(4, 3) = 0xFF;
  ExpectFault(matrix, Kind::kNanCode, 4, 3);
}

TEST(Fp8ToInt8Faults, ARowScaleBelowTheNormalNumbers) {
  Fp8Case matrix = Ordinary();
  for (float& scale : matrix.scales) scale = 0x1p-126f;
  for (size_t row = 0; row < matrix.rows; ++row)
    for (size_t column = 0; column < matrix.columns; ++column)
      matrix.Code(row, column) = column == 5 ? 0x78 : 0x30;  // 256 is above 127.5, 0.5 is below
  ExpectFault(matrix, Kind::kNone, 0, 0);
  matrix.Code(13, 5) = 0;
  matrix.Code(13, 17) = 0xB8;  // -1, the row's largest
  matrix.Code(13, 18) = 0x38;
  ExpectFault(matrix, Kind::kScaleUnderflow, 13, 17);
}

TEST(Fp8ToInt8Faults, TheFaultIsCountedFromTheChunksFirstRow) {
  Fp8Case matrix = Ordinary();
  matrix.Code(9, 10) = 0x7F;
  for (int64_t target : testing::AvailableTargets()) {
    const ForcedTarget forced(target);
    const Int8Result part = Convert(ConvertFp8RowsToInt8, matrix, Int8Range::k127, false, 6, 10);
    EXPECT_EQ(part.fault.kind, Kind::kNanCode);
    EXPECT_EQ(part.fault.row, 3u);
    EXPECT_EQ(part.fault.column, 10u);
    // Rows 0..8 hold nothing wrong.
    EXPECT_EQ(Convert(ConvertFp8RowsToInt8, matrix, Int8Range::k127, false, 0, 9).fault.kind,
              Kind::kNone);
  }
}

}  // namespace
}  // namespace blockscale
