// `sweep` leaves out scales that cannot win. Here it meets blocks made to catch it leaving out one
// that could: the result must be that of the scalar definition, which tries all 126 codes.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "numeric/block_quant.h"
#include "numeric/fp8_case.h"
#include "numeric/minifloat.h"
#include "numeric/quant_case.h"

namespace blockscale {
namespace {

using testing::AvailableTargets;
using testing::ForcedTarget;

constexpr size_t kWidth = 16;

struct Scales {
  std::vector<std::byte> codes;
  std::vector<float> effective;
};

template <typename Function>
Scales ScalesOf(Function encode, const EncodeOptions& options, const std::vector<float>& values) {
  const size_t blocks = values.size() / kWidth;
  Scales scales{std::vector<std::byte>(blocks), std::vector<float>(blocks)};
  std::vector<std::byte> codes(values.size() / 2);
  encode(options, values.data(), 1, values.size(),
         EncodedRows{codes.data(), scales.codes.data(), scales.effective.data()});
  return scales;
}

// What is different, or nothing.
std::string Difference(const EncodeOptions& options, const std::vector<float>& values) {
  const Scales all = ScalesOf(EncodeRowsScalar, options, values);
  for (const int64_t target : AvailableTargets()) {
    if (target > HWY_AVX2) continue;  // the scalar side itself
    const ForcedTarget forced(target);
    const Scales swept = ScalesOf(EncodeRows, options, values);
    for (size_t block = 0; block < all.codes.size(); ++block)
      if (all.codes[block] != swept.codes[block])
        return std::string(hwy::TargetName(target)) + " block " + std::to_string(block) +
               ": code " + std::to_string(std::to_integer<int>(swept.codes[block])) + " and not " +
               std::to_string(std::to_integer<int>(all.codes[block]));
  }
  return "";
}

EncodeOptions Options(GlobalScale::Kind kind, float global) {
  return {.spec = SpecOf(Scheme::kNvfp4), .rule = ScaleRule::kSweep, .global = {kind, global}};
}

float Effective(const EncodeOptions& options, uint32_t code) {
  return options.global.Apply(UE4M3::Decode(static_cast<uint8_t>(code)));
}

float Nudged(float value, int places) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) + static_cast<uint32_t>(places));
}

// The values' shapes: bells, flat ones, few large ones, powers far apart.
TEST(BlockSweep, RandomBlocks) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> flat(-1, 1);
  for (int round = 0; round < 8; ++round) {
    std::vector<float> values(512 * kWidth);
    for (size_t i = 0; i < values.size(); ++i) {
      const float bell = normal(random);
      const float shapes[] = {bell, flat(random), bell * bell * bell,
                              std::exp2(8 * flat(random)) * bell};
      values[i] = shapes[i / kWidth % 4];
    }
    const auto kind = round % 2 == 0 ? GlobalScale::Kind::kMultiplier : GlobalScale::Kind::kDivisor;
    const float amax = LargestMagnitude(values.data(), values.size());
    EncodeOptions options = Options(kind, 1);
    options.global = Nvfp4Global(amax * (round < 4 ? 1.0f : 1e-3f), ScaleRule::kSweep, kind);
    ASSERT_EQ(Difference(options, values), "") << round;
  }
}

// Values one or two places off the boundaries of the coarser scales, where FP32 may take the worse
// code, and nothing else that would tell the scales apart.
TEST(BlockSweep, ValuesBesideBoundaries) {
  std::mt19937 random(2);
  const float boundaries[] = {0.125f, 0.375f, 0.625f, 0.875f, 0.25f, 0.75f, 1.25f, 1.75f,
                              2.5f,   3.5f,   5.0f,   1.5f,   3.0f,  1.0f,  6.0f,  0.1875f};
  for (int round = 0; round < 12; ++round) {
    std::uniform_real_distribution<float> mantissa(1, 2);
    const EncodeOptions options =
        Options(round % 2 == 0 ? GlobalScale::Kind::kMultiplier : GlobalScale::Kind::kDivisor,
                round < 2 ? 1.0f : mantissa(random));
    std::vector<float> values;
    for (size_t block = 0; block < 512; ++block) {
      const float scale = Effective(options, 24 + random() % 100);
      const size_t distinct = 1 + random() % 4;
      std::vector<float> some;
      for (size_t i = 0; i < distinct; ++i)
        some.push_back(std::ldexp(boundaries[random() % 16], -static_cast<int>(random() % 3)));
      for (size_t i = 0; i < kWidth; ++i) {
        const float value = i == 0 ? (block % 2 == 0 ? 6.0f : 3.0f) : some[i % distinct];
        const int places = static_cast<int>(random() % 5) - 2;
        values.push_back(random() % 6 == 0 ? 0.0f : Nudged(value * scale, places));
      }
    }
    ASSERT_EQ(Difference(options, values), "") << round;
  }
}

// The nearest value of E2M1 to one that is not negative, ties to even.
float NearestE2m1(float v) {
  return v <= 0.25f   ? 0.0f
         : v < 0.75f  ? 0.5f
         : v <= 1.25f ? 1.0f
         : v < 1.75f  ? 1.5f
         : v <= 2.5f  ? 2.0f
         : v < 3.5f   ? 3.0f
         : v <= 5.0f  ? 4.0f
                      : 6.0f;
}

float TermOf(float y, float t) {
  const float d = y - NearestE2m1(y * (1.0f / t)) * t;
  return d * d;
}

// What block_sweep.inc rests on: near the ends of where t / 2 has a code that t has not, it is no
// worse, for every mantissa of t.
TEST(BlockSweep, HalfAScaleIsNoWorseBesideItsBoundaries) {
  for (float v = 0; v < 9; v += 0x1p-7f)
    ASSERT_EQ(NearestE2m1(v), E2M1::Decode(E2M1::Encode(v))) << v;
  for (const float boundary : {0.125f, 0.375f, 0.625f, 0.875f}) {
    uint64_t worse = 0, different = 0;
    for (uint32_t mantissa = 0; mantissa < uint32_t{1} << 23; ++mantissa) {
      const float t = std::bit_cast<float>(0x3F800000u | mantissa);
      for (int places = -6; places <= 6; ++places) {
        const float y = Nudged(boundary * t, places);
        const float whole = TermOf(y, t), half = TermOf(y, t / 2);
        worse += whole < half;
        different += whole != half;
      }
    }
    EXPECT_EQ(worse, 0u) << boundary;
    EXPECT_GT(different, uint64_t{1} << 23) << boundary;
  }
}

// Blocks that some scale, or several, hold exactly: the smallest of them wins.
TEST(BlockSweep, ExactBlocks) {
  std::mt19937 random(3);
  for (int round = 0; round < 6; ++round) {
    const EncodeOptions options =
        Options(GlobalScale::Kind::kMultiplier, round == 0 ? 1.0f : 0.003f * (1.0f + 0.1f * round));
    std::vector<float> values;
    for (size_t block = 0; block < 512; ++block) {
      const float scale = Effective(options, 1 + random() % 126);
      const uint32_t codes = 1 + random() % 8;  // up to which
      for (size_t i = 0; i < kWidth; ++i)
        values.push_back(E2M1::Decode(static_cast<uint8_t>(random() % codes)) * scale);
    }
    ASSERT_EQ(Difference(options, values), "") << round;
  }
}

// One value, or a few: many scales are alike but for a last place.
TEST(BlockSweep, LonelyValues) {
  std::mt19937 random(4);
  std::uniform_real_distribution<float> exponent(-12, 9);
  const EncodeOptions options = Options(GlobalScale::Kind::kMultiplier, 1.0f / 3.0f);
  std::vector<float> values(4096 * kWidth, 0.0f);
  for (size_t block = 0; block < 4096; ++block)
    for (size_t i = 0; i <= block % 3; ++i)
      values[block * kWidth + random() % kWidth] = std::exp2(exponent(random));
  EXPECT_EQ(Difference(options, values), "");
}

// Scale codes below 16, where no code need be half of another, and the last ones.
TEST(BlockSweep, EndsOfTheCodes) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  const EncodeOptions options = Options(GlobalScale::Kind::kDivisor, 0.7f);
  std::vector<float> values;
  for (size_t block = 0; block < 2048; ++block) {
    const float scale = block % 4 == 0 ? std::ldexp(1000.0f, static_cast<int>(random() % 9))
                                       : Effective(options, 1 + random() % 24);
    for (size_t i = 0; i < kWidth; ++i) values.push_back(normal(random) * scale);
  }
  EXPECT_EQ(Difference(options, values), "");
}

TEST(BlockSweep, AnyBlockAtAll) {
  const bool held = rc::check("sweep gives what all 126 codes give", [] {
    std::vector<float> values(8 * kWidth);
    for (float& value : values) {
      const auto mantissa = *rc::gen::inRange<int>(-0xFFFFFF, 0x1000000);
      value = std::ldexp(static_cast<float>(mantissa), *rc::gen::inRange(-30, -15));
    }
    const float global =
        std::ldexp(static_cast<float>(*rc::gen::inRange(1, 1 << 24)), *rc::gen::inRange(-30, -20));
    const auto kind =
        *rc::gen::element(GlobalScale::Kind::kMultiplier, GlobalScale::Kind::kDivisor);
    RC_ASSERT(Difference(Options(kind, global), values) == "");
  });
  EXPECT_TRUE(held);
}

}  // namespace
}  // namespace blockscale
