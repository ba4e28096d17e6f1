// Rows as they enter a matrix: finite ones by the oracle's rules, broken ones by the contract.

#include "moe/row_quant.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

namespace blockscale {
namespace {

std::vector<float> Decoded(const ScaledRows& rows, size_t row) {
  std::vector<float> out(rows.columns);
  DecodeRow(rows, row, out.data());
  return out;
}

std::vector<float> Normal(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& x : values) x = normal(random);
  return values;
}

// The scale by nested reading of the rule, then every value within half a step of it.
TEST(RowQuant, Mxfp8IsCeilAndNearest) {
  const auto values = Normal(128, 1);
  const ScaledRows rows = QuantiseRows(RowScheme::kMxfp8, {}, values.data(), 1, 128);
  const auto back = Decoded(rows, 0);
  for (size_t g = 0; g < 4; ++g) {
    float amax = 0;
    for (size_t i = 0; i < 32; ++i) amax = std::max(amax, std::fabs(values[32 * g + i]));
    const float scale = std::exp2(std::ceil(std::log2(amax / 448)));
    EXPECT_EQ(static_cast<int>(rows.scales[g]), 127 + static_cast<int>(std::log2(scale)));
    for (size_t i = 0; i < 32; ++i) {
      const float x = values[32 * g + i];
      EXPECT_LE(std::fabs(back[32 * g + i] - x), std::fabs(x) / 16 + scale * 0x1p-10f);
    }
  }
}

TEST(RowQuant, TokenSchemesUseTheLargestMagnitude) {
  std::vector<float> values = Normal(256, 2);
  values[3] = -254;
  values[200] = 8;
  const ScaledRows int8 = QuantiseRows(RowScheme::kInt8Token, {}, values.data(), 1, 256);
  float scale = 0;
  std::memcpy(&scale, int8.scales.data(), 4);
  EXPECT_EQ(scale, 2);
  EXPECT_EQ(static_cast<int8_t>(int8.codes[3]), -127);
  const ScaledRows fp8 = QuantiseRows(RowScheme::kFp8Token128, {}, values.data(), 1, 256);
  ASSERT_EQ(fp8.scales.size(), 8u);
  std::memcpy(&scale, fp8.scales.data() + 4, 4);
  EXPECT_EQ(scale, 8.0f / 448);
  EXPECT_EQ(QuantiseRows(RowScheme::kFp8Token, {}, values.data(), 1, 256).scales.size(), 4u);
}

TEST(RowQuant, Nvfp4GlobalIsOneForTheTensor) {
  const auto values = Normal(64, 3);
  const GlobalScale global{GlobalScale::Kind::kMultiplier, 0x1p-10f};
  const ScaledRows rows = QuantiseRows(RowScheme::kNvfp4, global, values.data(), 2, 32);
  EXPECT_EQ(rows.codes.size(), 32u);
  EXPECT_EQ(rows.scales.size(), 4u);
  const auto back = Decoded(rows, 1);
  for (size_t i = 0; i < 32; ++i) EXPECT_NEAR(back[i], values[32 + i], 0.6);
}

TEST(RowQuant, Mxfp8NanIsLargestAndLeavesItsGroupAlone) {
  auto values = Normal(64, 4);
  const auto whole = Decoded(QuantiseRows(RowScheme::kMxfp8, {}, values.data(), 1, 64), 0);
  values[5] = NAN;
  values[6] = -NAN;
  const ScaledRows rows = QuantiseRows(RowScheme::kMxfp8, {}, values.data(), 1, 64);
  EXPECT_EQ(rows.codes[5], std::byte{0x7E});
  EXPECT_EQ(rows.codes[6], std::byte{0x7E});
  const auto back = Decoded(rows, 0);
  for (size_t i = 0; i < 64; ++i)
    if (i != 5 && i != 6) {
      EXPECT_EQ(back[i], whole[i]) << i;
    }
}

TEST(RowQuant, Mxfp8InfinityLosesItsSignAndItsNeighbours) {
  auto values = Normal(64, 5);
  values[40] = -INFINITY;
  const ScaledRows rows = QuantiseRows(RowScheme::kMxfp8, {}, values.data(), 1, 64);
  EXPECT_EQ(rows.scales[1], std::byte{0xFE});
  const auto back = Decoded(rows, 0);
  for (size_t i = 32; i < 64; ++i) EXPECT_EQ(back[i], i == 40 ? INFINITY : 0) << i;
  for (size_t i = 0; i < 32; ++i) EXPECT_NE(back[i], 0) << i;
}

TEST(RowQuant, Mxfp8OfZerosAndNanIsTiny) {
  std::vector<float> values(32, 0);
  values[0] = NAN;
  const ScaledRows rows = QuantiseRows(RowScheme::kMxfp8, {}, values.data(), 1, 32);
  EXPECT_EQ(rows.scales[0], std::byte{0});
  EXPECT_EQ(Decoded(rows, 0)[0], 448 * 0x1p-127f);
  EXPECT_EQ(Decoded(rows, 0)[1], 0);
}

TEST(RowQuant, OtherSchemesPoisonWhatSharesTheScale) {
  for (const RowScheme scheme :
       {RowScheme::kNvfp4, RowScheme::kInt8Token, RowScheme::kFp8Token, RowScheme::kFp8Token128})
    for (const float broken : {NAN, INFINITY, -INFINITY}) {
      auto values = Normal(256, 6);
      values[10] = broken;
      const GlobalScale global{GlobalScale::Kind::kMultiplier, 0x1p-10f};
      const auto back = Decoded(QuantiseRows(scheme, global, values.data(), 1, 256), 0);
      const size_t group = GroupOf(scheme, 256);
      for (size_t i = 0; i < 256; ++i) EXPECT_EQ(std::isnan(back[i]), i < group) << i;
    }
}

TEST(RowQuant, Bf16GoesOnAsItIs) {
  const float values[] = {1.00390625f, NAN, INFINITY, -INFINITY};
  const auto back = Decoded(QuantiseRows(RowScheme::kBf16, {}, values, 1, 4), 0);
  EXPECT_EQ(back[0], 1);  // a tie, to even
  EXPECT_TRUE(std::isnan(back[1]));
  EXPECT_EQ(back[2], INFINITY);
  EXPECT_EQ(back[3], -INFINITY);
}

}  // namespace
}  // namespace blockscale
