// The comparator alone, on ranges written out by hand.

#include "verify/moe_compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace blockscale {
namespace {

constexpr uint32_t kColumns = 4;

MoeSpec SpecOfFour() {
  MoeSpec spec;
  spec.hidden = kColumns;
  spec.output = OutputType::kF32;
  return spec;
}

// Two tokens; each value v may lie in [v - 1, v + 2].
Expected Ranges() {
  Expected expected;
  for (int i = 0; i < 8; ++i) {
    expected.value.push_back(10 * i);
    expected.low.push_back(10 * i - 1);
    expected.high.push_back(10 * i + 2);
  }
  expected.finite_row = {true, true};
  return expected;
}

Comparison Compare(const Expected& expected, const std::vector<float>& output) {
  std::vector<std::byte> bytes(output.size() * sizeof(float));
  std::memcpy(bytes.data(), output.data(), bytes.size());
  return CompareOutput(SpecOfFour(), expected, bytes.data());
}

TEST(MoeCompare, EqualIsZero) {
  const Comparison c = Compare(Ranges(), {0, 10, 20, 30, 40, 50, 60, 70});
  EXPECT_TRUE(c.passed);
  EXPECT_EQ(c.worst, 0);
  EXPECT_EQ(c.nrmse, 0);
  EXPECT_DOUBLE_EQ(c.cosine, 1);
}

TEST(MoeCompare, TheBoundIsThatOfItsSide) {
  const Comparison above = Compare(Ranges(), {0, 10, 22, 30, 40, 50, 60, 70});
  EXPECT_TRUE(above.passed);
  EXPECT_EQ(above.worst, 1);
  EXPECT_EQ(above.column, 2u);
  const Comparison below = Compare(Ranges(), {0, 10, 18, 30, 40, 50, 60, 70});
  EXPECT_FALSE(below.passed);
  EXPECT_EQ(below.worst, 2);
  EXPECT_EQ(
      below.message,
      "1 elements outside their bound, the worst at token 0 column 2: 18 where 19 to 22 is right");
}

TEST(MoeCompare, WithoutAnyReachOnlyTheValueIsRight) {
  Expected expected = Ranges();
  expected.low[5] = expected.high[5] = 50;
  EXPECT_TRUE(Compare(expected, {0, 10, 20, 30, 40, 50, 60, 70}).passed);
  const Comparison c = Compare(expected, {0, 10, 20, 30, 40, 50.001f, 60, 70});
  EXPECT_FALSE(c.passed);
  EXPECT_TRUE(std::isinf(c.worst));
  EXPECT_EQ(c.token, 1u);
}

TEST(MoeCompare, NonFiniteRowsMustBeTheSame) {
  Expected expected = Ranges();
  expected.finite_row[1] = false;
  const Comparison same = Compare(expected, {0, 10, 20, 30, NAN, 0, INFINITY, 5});
  EXPECT_TRUE(same.passed);
  EXPECT_EQ(same.broken_rows, 1u);
  const Comparison finite = Compare(expected, {0, 10, 20, 30, 40, 50, 60, 70});
  EXPECT_FALSE(finite.passed);
  EXPECT_EQ(finite.message, "1 rows are finite on one side only, the first is token 1");
  const Comparison broken = Compare(expected, {NAN, 10, 20, 30, NAN, 0, 0, 0});
  EXPECT_FALSE(broken.passed);
  EXPECT_EQ(broken.wrong_rows, 1u);
}

TEST(MoeCompare, MeasuresOverFiniteRows) {
  const Comparison c = Compare(Ranges(), {0, 10, 20, 30, 41, 51, 61, 71});
  EXPECT_TRUE(c.passed);
  EXPECT_NEAR(c.nrmse, std::sqrt(4.0 / 14000), 1e-12);
  EXPECT_LT(c.cosine, 1);
  EXPECT_GT(c.cosine, 0.999);
}

TEST(MoeCompare, ZerosAgainstZeros) {
  Expected expected = Ranges();
  expected.value.assign(8, 0);
  expected.low.assign(8, 0);
  expected.high.assign(8, 0);
  EXPECT_TRUE(Compare(expected, std::vector<float>(8, 0)).passed);
  EXPECT_TRUE(Compare(expected, std::vector<float>(8, -0.0f)).passed);
  EXPECT_FALSE(Compare(expected, std::vector<float>(8, 1e-30f)).passed);
}

}  // namespace
}  // namespace blockscale
