// What holds for any matrix: no element moves by more than half a step, all instruction sets agree,
// and a power of two in all scales moves nothing but the row scales.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "blockscale/fp8_to_int8.h"
#include "numeric/fp8_case.h"
#include "numeric/minifloat.h"

namespace blockscale {
namespace {

using testing::Convert;
using testing::Fp8Case;
using testing::Int8Result;

Fp8Case Arbitrary(int smallest_exponent, int largest_exponent) {
  const auto rows = *rc::gen::inRange<size_t>(1, 5);
  const auto columns = *rc::gen::inRange<size_t>(1, 700);
  const auto width = *rc::gen::element<size_t>(32, 64, 128, 192, 1000, 17);
  Fp8Case matrix(rows, columns, *rc::gen::inRange<size_t>(1, 4), width);
  std::mt19937 random(*rc::gen::arbitrary<uint32_t>());
  const auto largest = *rc::gen::inRange<uint8_t>(1, 0x7F);
  testing::FillCodes(matrix, random, largest);
  std::uniform_int_distribution<int> exponent(smallest_exponent, largest_exponent);
  for (float& scale : matrix.scales)
    scale = std::ldexp(1.0f + 0x1p-23f * static_cast<float>(random() & 0x7FFFFF), exponent(random));
  return matrix;
}

RC_GTEST_PROP(Fp8ToInt8Property, NothingMovesByMoreThanHalfAStep, ()) {
  Fp8Case matrix = Arbitrary(-20, 4);
  const Int8Result result = Convert(ConvertFp8RowsToInt8, matrix, Int8Range::k127, true);
  RC_ASSERT(result.fault.kind == RowFault::Kind::kNone);
  for (size_t row = 0; row < matrix.rows; ++row) {
    RC_ASSERT(result.quality[row].max_error <= 0.5f * (1 + 1e-5f));
    for (size_t column = 0; column < matrix.columns; ++column) {
      // W is the rounded product by definition; the bound allows for the quotient's rounding alone.
      const float product = E4M3::Decode(matrix.Code(row, column)) * matrix.Scale(row, column);
      const double exact = product;
      const double step = result.row_scales[row];
      const double moved = std::fabs(exact - result.codes[row * matrix.columns + column] * step);
      RC_ASSERT(moved <= 0.5 * step * (1 + 1e-5));
    }
  }
}

RC_GTEST_PROP(Fp8ToInt8Property, TheFastSideGivesTheBitsOfTheScalarSide, ()) {
  const Fp8Case matrix = Arbitrary(-60, 60);
  const auto range = *rc::gen::element(Int8Range::k127, Int8Range::k128);
  const bool quality = *rc::gen::arbitrary<bool>();
  testing::ExpectSame(Convert(ConvertFp8RowsToInt8, matrix, range, quality),
                      Convert(ConvertFp8RowsToInt8Scalar, matrix, range, true), matrix.columns,
                      matrix.rows);
  RC_ASSERT(!::testing::Test::HasFailure());
}

RC_GTEST_PROP(Fp8ToInt8Property, APowerOfTwoInAllScalesMovesOnlyTheRowScales, ()) {
  Fp8Case matrix = Arbitrary(-10, 10);
  const Int8Result before = Convert(ConvertFp8RowsToInt8, matrix, Int8Range::k127, false);
  const int exponent = *rc::gen::inRange(-90, 90);
  for (float& scale : matrix.scales) scale = std::ldexp(scale, exponent);
  const Int8Result after = Convert(ConvertFp8RowsToInt8, matrix, Int8Range::k127, false);
  RC_ASSERT(before.codes == after.codes);
  for (size_t row = 0; row < matrix.rows; ++row) {
    const bool zero = before.row_scales[row] == 1.0f && after.row_scales[row] == 1.0f;
    RC_ASSERT(zero || after.row_scales[row] == std::ldexp(before.row_scales[row], exponent));
  }
}

}  // namespace
}  // namespace blockscale
