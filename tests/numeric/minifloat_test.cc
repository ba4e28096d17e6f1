#include "numeric/minifloat.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace blockscale {
namespace {

nlohmann::json Golden(const std::string& name) {
  std::ifstream file(std::string(BLOCKSCALE_GOLDEN) + "/" + name);
  EXPECT_TRUE(file.good()) << name;
  return nlohmann::json::parse(file);
}

float FromBits(uint32_t bits) { return std::bit_cast<float>(bits); }

// What decoding gives according to somebody else.
template <typename Codec>
void ExpectDecodes(const char* name) {
  const auto table =
      Golden("decode_tables.json").at("tables").at(name).get<std::vector<uint32_t>>();
  ASSERT_EQ(table.size(), size_t{1} << Codec::kBits);
  for (size_t code = 0; code < table.size(); ++code) {
    const float expected = FromBits(table[code]);
    const float value = Codec::Decode(static_cast<typename Codec::Code>(code));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << name << " " << code;
      EXPECT_TRUE(Codec::IsNan(static_cast<typename Codec::Code>(code))) << name << " " << code;
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(value), table[code]) << name << " " << code;
      EXPECT_FALSE(Codec::IsNan(static_cast<typename Codec::Code>(code))) << name << " " << code;
    }
  }
}

TEST(Minifloat, DecodesEveryCodeLikeMlDtypes) {
  ExpectDecodes<E4M3>("e4m3fn");
  ExpectDecodes<E5M2>("e5m2");
  ExpectDecodes<E8M0>("e8m0fnu");
  ExpectDecodes<E2M1>("e2m1fn");
}

template <typename Codec>
void ExpectEncodes(const char* name, Overflow overflow) {
  const nlohmann::json golden = Golden("encode_vectors.json");
  const auto input = golden.at("input").get<std::vector<uint32_t>>();
  const auto codes = golden.at("codes").at(name).get<std::vector<uint32_t>>();
  ASSERT_EQ(input.size(), codes.size());
  for (size_t i = 0; i < input.size(); ++i) {
    const float value = FromBits(input[i]);
    const auto code = Codec::Encode(value, overflow);
    if (std::isnan(value)) {
      if (std::is_same_v<Codec, E2M1>) continue;  // it has no NaN to compare
      EXPECT_TRUE(Codec::IsNan(code)) << name << " of NaN";
    } else {
      EXPECT_EQ(uint32_t{code}, codes[i]) << name << " of " << value;
    }
  }
}

TEST(Minifloat, EncodesLikeMlDtypes) {
  ExpectEncodes<E4M3>("e4m3fn_saturating", Overflow::kSaturate);
  ExpectEncodes<E4M3>("e4m3fn_ieee_overflow_to_nan_or_inf", Overflow::kIeee);
  ExpectEncodes<E5M2>("e5m2_saturating", Overflow::kSaturate);
  ExpectEncodes<E5M2>("e5m2_ieee_overflow_to_nan_or_inf", Overflow::kIeee);
  ExpectEncodes<E2M1>("e2m1fn_saturating", Overflow::kSaturate);
  ExpectEncodes<BF16>("bf16", Overflow::kIeee);
  ExpectEncodes<FP16>("fp16", Overflow::kIeee);
}

// Every finite magnitude of a format, index = code.
template <typename Codec>
std::vector<double> Magnitudes() {
  std::vector<double> values;
  for (uint32_t code = 0; code <= Codec::kLargest; ++code)
    values.push_back(Codec::Decode(static_cast<typename Codec::Code>(code)));
  return values;
}

// The nearest code by search, ties to the even one; saturating.
uint32_t NearestBySearch(const std::vector<double>& magnitudes, double value) {
  const auto above = std::lower_bound(magnitudes.begin(), magnitudes.end(), value);
  if (above == magnitudes.end()) return static_cast<uint32_t>(magnitudes.size() - 1);
  const auto high = static_cast<uint32_t>(above - magnitudes.begin());
  if (high == 0) return 0;
  const double up = magnitudes[high] - value, down = value - magnitudes[high - 1];
  if (up == down) return high % 2 == 0 ? high : high - 1;
  return up < down ? high : high - 1;
}

template <typename Codec>
void ExpectNearest(const std::vector<double>& magnitudes, float value) {
  const uint32_t nearest = NearestBySearch(magnitudes, std::fabs(double{value}));
  const bool has_sign = Codec::kBits > Codec::kMagnitudeBits;
  const uint32_t sign = has_sign && std::signbit(value) ? 1u << Codec::kMagnitudeBits : 0u;
  const uint32_t expected = !has_sign && value < 0 ? 0u : (sign | nearest);
  ASSERT_EQ(uint32_t{Codec::Encode(value)}, expected) << "of " << value;
}

template <typename Codec>
class AnyMinifloat : public ::testing::Test {};
using AllMinifloats = ::testing::Types<E2M1, E4M3, E5M2, UE4M3, FP16, BF16>;
TYPED_TEST_SUITE(AnyMinifloat, AllMinifloats);

TYPED_TEST(AnyMinifloat, EveryCodeSurvivesARoundTrip) {
  for (uint32_t code = 0; code < (1u << TypeParam::kBits); ++code) {
    const auto narrow = static_cast<typename TypeParam::Code>(code);
    const float value = TypeParam::Decode(narrow);
    if (TypeParam::IsNan(narrow)) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_TRUE(TypeParam::IsNan(TypeParam::Encode(value)));
    } else {
      EXPECT_EQ(TypeParam::Encode(value, Overflow::kIeee), narrow) << value;
    }
  }
}

TYPED_TEST(AnyMinifloat, EveryBf16InputGoesToTheNearestCode) {
  const auto magnitudes = Magnitudes<TypeParam>();
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = FromBits(bits << 16);
    if (!std::isnan(value)) ExpectNearest<TypeParam>(magnitudes, value);
  }
}

TYPED_TEST(AnyMinifloat, MidpointsGoToTheEvenCodeAndTheirNeighboursToTheNearest) {
  const auto magnitudes = Magnitudes<TypeParam>();
  const float infinity = std::numeric_limits<float>::infinity();
  for (size_t code = 0; code + 1 < magnitudes.size(); ++code) {
    const auto midpoint = static_cast<float>((magnitudes[code] + magnitudes[code + 1]) / 2);
    for (float value : {midpoint, std::nextafter(midpoint, 0.0f),
                        std::nextafter(midpoint, infinity), -midpoint}) {
      ExpectNearest<TypeParam>(magnitudes, value);
    }
    const auto expected = static_cast<typename TypeParam::Code>(code % 2 == 0 ? code : code + 1);
    ASSERT_EQ(TypeParam::Encode(midpoint), expected) << midpoint;
  }
}

TYPED_TEST(AnyMinifloat, BeyondTheLargestItSaturatesOrLeavesTheNumbers) {
  const auto largest = static_cast<typename TypeParam::Code>(TypeParam::kLargest);
  for (float value : {std::numeric_limits<float>::max(), std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(TypeParam::Encode(value), largest);
    const float kept = TypeParam::Decode(TypeParam::Encode(value, Overflow::kIeee));
    EXPECT_TRUE(!std::isfinite(kept) || (std::is_same_v<TypeParam, E2M1> && kept == 6.0f)) << kept;
  }
}

TEST(Minifloat, ValuesThatEveryoneKnows) {
  EXPECT_EQ(E2M1::Decode(E2M1::kLargest), 6.0f);
  EXPECT_EQ(E4M3::Decode(E4M3::kLargest), 448.0f);
  EXPECT_EQ(E4M3::Decode(1), 0x1p-9f);
  EXPECT_EQ(E5M2::Decode(E5M2::kLargest), 57344.0f);
  EXPECT_EQ(UE4M3::Decode(0x7E), 448.0f);
  EXPECT_EQ(FP16::Decode(FP16::kLargest), 65504.0f);
  EXPECT_EQ(BF16::Decode(0x3F80), 1.0f);
  EXPECT_TRUE(E4M3::IsNan(0xFF));
  EXPECT_FALSE(E2M1::IsNan(0xF));
}

TEST(Minifloat, NegativeZeroKeepsItsSign) {
  EXPECT_EQ(E4M3::Encode(-0.0f), 0x80);
  EXPECT_TRUE(std::signbit(E4M3::Decode(0x80)));
  EXPECT_EQ(E4M3::Encode(-1e-30f), 0x80);
  EXPECT_EQ(UE4M3::Encode(-0.0f), 0);
}

TEST(E8M0, EndsOfItsRange) {
  EXPECT_EQ(E8M0::Decode(0), 0x1p-127f);
  EXPECT_EQ(E8M0::Decode(127), 1.0f);
  EXPECT_EQ(E8M0::Decode(254), 0x1p127f);
  EXPECT_TRUE(std::isnan(E8M0::Decode(0xFF)));
}

TEST(Int8, RoundsTiesToEvenAndSaturates) {
  for (int code = -128; code <= 127; ++code)
    EXPECT_EQ(Int8::Encode(Int8::Decode(static_cast<int8_t>(code))), code);
  EXPECT_EQ(Int8::Encode(0.5f), 0);
  EXPECT_EQ(Int8::Encode(1.5f), 2);
  EXPECT_EQ(Int8::Encode(-2.5f), -2);
  EXPECT_EQ(Int8::Encode(1e30f), 127);
  EXPECT_EQ(Int8::Encode(-std::numeric_limits<float>::infinity()), -128);
  EXPECT_EQ(Int8::Encode(std::numeric_limits<float>::quiet_NaN()), 0);
}

}  // namespace
}  // namespace blockscale
