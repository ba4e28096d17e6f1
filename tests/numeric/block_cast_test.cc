#include "numeric/block_cast.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "numeric/block_quant.h"

namespace blockscale {
namespace {

std::byte Byte(int value) { return static_cast<std::byte>(value); }

// Every code, in a block whose exponent lies `below` the largest.
std::vector<float> CastValues(int below, GlobalScale::Kind kind, std::vector<float>* before) {
  std::vector<std::byte> codes(32), scales = {Byte(127 + 3), Byte(127 + 3 - below)};
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = Byte(static_cast<int>(i * 0x11 & 0xFF));
  before->resize(64);
  std::vector<float> effective(2);
  DecodeScales(Format::kE8M0, {}, scales.data(), 2, effective.data());
  DecodeRows({SpecOf(Scheme::kMxfp4), codes.data(), 1, 64, 0, effective.data()}, before->data());
  const int largest = LargestExponent(scales.data(), scales.size());
  EXPECT_EQ(largest, 3);
  std::vector<std::byte> out_codes(32), out_scales(4);
  CastMxfp4ToNvfp4(codes.data(), scales.data(), 1, 64, largest, out_codes.data(),
                   out_scales.data());
  std::vector<float> nv_effective(4), after(64);
  DecodeScales(Format::kUE4M3, CastGlobal(largest, kind), out_scales.data(), 4,
               nv_effective.data());
  DecodeRows({SpecOf(Scheme::kNvfp4), out_codes.data(), 1, 64, 0, nv_effective.data()},
             after.data());
  return after;
}

TEST(BlockCast, IsExactAsFarAsE4m3Reaches) {
  for (const auto kind : {GlobalScale::Kind::kDivisor, GlobalScale::Kind::kMultiplier})
    for (int below = 0; below <= kCastSpan; ++below) {
      std::vector<float> before;
      EXPECT_EQ(CastValues(below, kind, &before), before) << below;
    }
}

// Further down codes are rounded again, to the smallest scale's steps.
TEST(BlockCast, BeyondThatCodesAreRoundedAgain) {
  std::vector<float> before;
  const std::vector<float> after = CastValues(kCastSpan + 2, GlobalScale::Kind::kDivisor, &before);
  const float step = std::ldexp(1.0f, 3 - kCastSpan) * 0.5f;
  bool changed = false;
  for (size_t i = 32; i < 64; ++i) {
    EXPECT_LE(std::fabs(after[i] - before[i]), step / 2) << i;
    changed |= after[i] != before[i];
  }
  EXPECT_TRUE(changed);
}

TEST(BlockCast, BlocksOfZerosDoNotCount) {
  const std::vector<std::byte> scales = {Byte(0), Byte(120), Byte(100), Byte(255)};
  EXPECT_EQ(LargestExponent(scales.data(), scales.size()), 120 - 127);
  EXPECT_EQ(LargestExponent(scales.data(), 1), -127);
}

}  // namespace
}  // namespace blockscale
