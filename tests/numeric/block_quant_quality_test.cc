// What each scheme and rule costs: relative RMSE of Gaussian rows of 4096, seed fixed. The figures
// are those that numpy gives on such rows (docs/formats.md, "What a scheme costs").
#include <gtest/gtest.h>

#include <cmath>

#include "quant_case.h"

namespace blockscale {
namespace {

double Percent(Scheme scheme, ScaleRule rule) {
  const std::vector<float> values = Gaussian(32 * 4096, 1234);
  const QuantCase got =
      RunCase(OptionsFor(scheme, rule, values), values, 4096, EncodeRows, DecodeRows);
  return 100 * std::sqrt(got.loss.sum_squared_errors / got.loss.sum_squares);
}

TEST(BlockQuantQuality, GaussianRowsCostWhatTheyShould) {
  EXPECT_LE(Percent(Scheme::kInt8Channel, ScaleRule::kAbsmax), 0.88);
  EXPECT_LE(Percent(Scheme::kMxfp8, ScaleRule::kCeil), 2.67);
  EXPECT_NEAR(Percent(Scheme::kMxfp8, ScaleRule::kFloor), 2.94, 0.03);
  EXPECT_NEAR(Percent(Scheme::kMxfp4, ScaleRule::kCeil), 11.6, 0.1);
  EXPECT_NEAR(Percent(Scheme::kMxfp4, ScaleRule::kFloor), 11.5, 0.1);
  EXPECT_LE(Percent(Scheme::kMxfp4, ScaleRule::kMse), 11.2);
  EXPECT_LE(Percent(Scheme::kNvfp4, ScaleRule::kAbsmax), 9.55);
  EXPECT_LE(Percent(Scheme::kNvfp4, ScaleRule::kFourOverSix), 8.75);
  EXPECT_LE(Percent(Scheme::kNvfp4, ScaleRule::kSweep), 8.2);
  EXPECT_LE(Percent(Scheme::kInt4Group, ScaleRule::kMse), 10.2);
}

// A search is never worse than the scale it starts from, and none is better than it can be.
TEST(BlockQuantQuality, SearchingPays) {
  EXPECT_LT(Percent(Scheme::kInt8Channel, ScaleRule::kMse),
            Percent(Scheme::kInt8Channel, ScaleRule::kAbsmax));
  EXPECT_LT(Percent(Scheme::kInt4Group, ScaleRule::kMse),
            Percent(Scheme::kInt4Group, ScaleRule::kAbsmax));
  EXPECT_GT(Percent(Scheme::kNvfp4, ScaleRule::kSweep), 7.5);
  EXPECT_GT(Percent(Scheme::kInt4Group, ScaleRule::kMse), 9.5);
}

}  // namespace
}  // namespace blockscale
