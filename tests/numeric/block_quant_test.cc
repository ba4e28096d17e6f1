#include "numeric/block_quant.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "numeric/scale_search.h"
#include "quant_case.h"

namespace blockscale {
namespace {

QuantCase Recode(const EncodeOptions& options, const std::vector<float>& values, size_t columns) {
  return RunCase(options, values, columns, EncodeRowsScalar, DecodeRowsScalar);
}

std::vector<std::pair<Scheme, ScaleRule>> AllCombinations() {
  std::vector<std::pair<Scheme, ScaleRule>> all;
  for (const Scheme scheme : AllScheme())
    for (const ScaleRule rule : AllScaleRule())
      if (RuleFits(rule, scheme) && rule != ScaleRule::kExactCast) all.emplace_back(scheme, rule);
  return all;
}

std::string Text(Scheme scheme, ScaleRule rule) {
  return std::string(NameOf(scheme)) + " " + std::string(NameOf(rule));
}

// 48 x 256 values that somebody else quantised (tests/golden/README.md).
void ExpectGoldenMx(const char* key, Scheme scheme, ScaleRule rule) {
  std::ifstream file(std::string(BLOCKSCALE_GOLDEN) + "/mx_quantise_triton_kernels.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  const auto input = golden.at("input_bf16").get<std::vector<std::vector<uint16_t>>>();
  const auto codes = golden.at(key).at("codes").get<std::vector<std::vector<uint8_t>>>();
  const auto scales = golden.at(key).at("scales").get<std::vector<std::vector<uint8_t>>>();
  ASSERT_EQ(input.size(), 48u);
  size_t compared = 0;
  for (size_t row = 0; row < input.size(); ++row) {
    std::vector<float> values;
    for (const uint16_t half : input[row])
      values.push_back(std::bit_cast<float>(uint32_t{half} << 16));
    const QuantCase got = Recode({.spec = SpecOf(scheme), .rule = rule}, values, values.size());
    for (size_t group = 0; group < got.scales.size(); ++group) {
      float amax = LargestMagnitude(values.data() + 32 * group, 32);
      if (amax == 0 || (row == 6 && group == 1)) continue;  // that library's own choices
      EXPECT_EQ(std::to_integer<int>(got.scales[group]), scales[row][group])
          << key << " row " << row << " group " << group << " amax " << amax;
      const size_t bytes = 32 * static_cast<size_t>(BitsOf(SpecOf(scheme).element)) / 8;
      for (size_t i = bytes * group; i < bytes * (group + 1); ++i) {
        EXPECT_EQ(std::to_integer<int>(got.codes[i]), codes[row][i])
            << key << " row " << row << " byte " << i;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 5000u);
}

TEST(BlockQuant, EqualsAnotherLibraryOnMx) {
  ExpectGoldenMx("mxfp4_ROUND_UP", Scheme::kMxfp4, ScaleRule::kCeil);
  ExpectGoldenMx("mxfp4_ROUND_DOWN", Scheme::kMxfp4, ScaleRule::kFloor);
  ExpectGoldenMx("mxfp8_e4m3_ROUND_UP", Scheme::kMxfp8, ScaleRule::kCeil);
  ExpectGoldenMx("mxfp8_e4m3_ROUND_DOWN", Scheme::kMxfp8, ScaleRule::kFloor);
}

// E8M0 bytes for a block's largest magnitude: ceil, floor, even (torchao, FlashInfer and
// compressed-tensors agree on these; docs/formats.md).
TEST(BlockQuant, E8m0ExponentsAreThoseOfTheLibraries) {
  struct Row {
    float amax;
    int ceil, floor, even;
  };
  const float inf = std::numeric_limits<float>::infinity();
  for (const Row& row : std::vector<Row>{{0.5f, 124, 124, 124},
                                         {0.75f, 124, 124, 124},
                                         {1, 125, 125, 125},
                                         {1.5f, 125, 125, 125},
                                         {2, 126, 126, 126},
                                         {3, 126, 126, 126},
                                         {std::nextafter(3.0f, inf), 127, 126, 126},
                                         {3.5f, 127, 126, 127},
                                         {4, 127, 127, 127},
                                         {6, 127, 127, 127},
                                         {std::nextafter(6.0f, inf), 128, 127, 127},
                                         {7, 128, 127, 128},
                                         {8, 128, 128, 128},
                                         {100, 132, 131, 131},
                                         {448, 134, 133, 134}}) {
    EXPECT_EQ(MxExponent(row.amax, Format::kE2M1, ScaleRule::kCeil) + 127, row.ceil) << row.amax;
    EXPECT_EQ(MxExponent(row.amax, Format::kE2M1, ScaleRule::kFloor) + 127, row.floor) << row.amax;
    EXPECT_EQ(MxExponent(row.amax, Format::kE2M1, ScaleRule::kEven) + 127, row.even) << row.amax;
  }
  for (const Row& row : std::vector<Row>{{1, 119, 119, 119},
                                         {1.75f, 119, 119, 120},
                                         {std::nextafter(1.75f, inf), 120, 119, 120},
                                         {3.6f, 121, 120, 121},
                                         {448, 127, 127, 128},
                                         {449, 128, 127, 128},
                                         {512, 128, 128, 128},
                                         {1e5f, 135, 135, 135}}) {
    EXPECT_EQ(MxExponent(row.amax, Format::kE4M3, ScaleRule::kCeil) + 127, row.ceil) << row.amax;
    EXPECT_EQ(MxExponent(row.amax, Format::kE4M3, ScaleRule::kFloor) + 127, row.floor) << row.amax;
    EXPECT_EQ(MxExponent(row.amax, Format::kE4M3, ScaleRule::kEven) + 127, row.even) << row.amax;
  }
}

// No value is off by more than half a step of its code, whatever the scheme; what lies beyond the
// largest code is counted apart, and only rules that may clip do.
TEST(BlockQuant, NoValueIsOffByMoreThanHalfAStep) {
  for (const auto& [scheme, rule] : AllCombinations()) {
    for (const float size : {1.0f, 3e-5f, 1e6f}) {
      std::vector<float> values = Gaussian(256 * 384, 5);
      for (float& value : values) value *= size;
      if (scheme == Scheme::kFP16 && size == 1e6f) continue;
      const QuantCase got = Recode(OptionsFor(scheme, rule, values), values, 384);
      EXPECT_LE(got.loss.largest_error, 1.0001f) << Text(scheme, rule) << " " << size;
      const bool may_clip = rule != ScaleRule::kCeil && HasScales(scheme);
      if (!may_clip) {
        EXPECT_EQ(got.loss.clipped, 0u) << Text(scheme, rule);
      }
      EXPECT_GT(got.loss.sum_squares, 0) << Text(scheme, rule);
      EXPECT_EQ(got.loss.zero_rows, 0u);
    }
  }
}

TEST(BlockQuant, ZerosStayZerosAndScalesStayUsable) {
  for (const auto& [scheme, rule] : AllCombinations()) {
    std::vector<float> values(4 * 128, 0.0f);
    values[1] = -0.0f;
    const QuantCase got = Recode(OptionsFor(scheme, rule, values), values, 128);
    for (const float value : got.decoded) EXPECT_EQ(value, 0.0f) << Text(scheme, rule);
    for (const float scale : got.effective) EXPECT_GT(scale, 0.0f) << Text(scheme, rule);
    EXPECT_EQ(got.loss.zero_rows, 4u);
    EXPECT_EQ(got.loss.inexact_blocks, 0u);
  }
}

// Whatever a scheme can hold comes back as it was, when it is encoded again with the same scales.
TEST(BlockQuant, DecodedValuesAreFixedPoints) {
  for (const Scheme scheme : {Scheme::kMxfp4, Scheme::kMxfp8}) {
    const std::vector<float> values = Gaussian(64 * 256, 11);
    const QuantCase once = Recode({.spec = SpecOf(scheme), .rule = ScaleRule::kCeil}, values, 256);
    const QuantCase twice =
        Recode({.spec = SpecOf(scheme), .rule = ScaleRule::kCeil}, once.decoded, 256);
    EXPECT_EQ(twice.loss.inexact_blocks, 0u) << NameOf(scheme);
    EXPECT_EQ(twice.decoded, once.decoded) << NameOf(scheme);
  }
}

// The low half of a byte is the even column; INT4 adds 8 to the value and fills up whole words.
TEST(BlockQuant, HalvesOfBytesAreInOrder) {
  const std::vector<float> values = {0.5f, -6, 3, 0, -0.0f, 1, 1.5f, 2};
  std::vector<float> row(32, 0.0f);
  std::copy(values.begin(), values.end(), row.begin());
  const QuantCase mx = Recode({.spec = SpecOf(Scheme::kMxfp4), .rule = ScaleRule::kCeil}, row, 32);
  EXPECT_EQ(std::to_integer<int>(mx.scales[0]), 127);
  const int expected[] = {0xF1, 0x05, 0x28, 0x43};
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(std::to_integer<int>(mx.codes[i]), expected[i]) << i;

  const std::vector<float> nine = {7.5f, -7.5f, 1, 2, 3, 4, 5, 6, -1};
  const QuantCase int4 = Recode({.spec = SpecOf(Scheme::kInt4Group)}, nine, 9);
  EXPECT_EQ(int4.effective[0], 1.0f);
  const int words[] = {0x0F, 0xA9, 0xCB, 0xED, 0x87, 0x88, 0x88, 0x88};
  ASSERT_EQ(int4.codes.size(), 8u);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(std::to_integer<int>(int4.codes[i]), words[i]) << i;
}

TEST(BlockQuant, GlobalScalesAreDivisorsOrMultipliersAsTagged) {
  const GlobalScale multiplier =
      Nvfp4Global(1344.0f, ScaleRule::kAbsmax, GlobalScale::Kind::kMultiplier);
  const GlobalScale divisor = Nvfp4Global(1344.0f, ScaleRule::kAbsmax, GlobalScale::Kind::kDivisor);
  EXPECT_EQ(multiplier.value, 0.5f);
  EXPECT_EQ(divisor.value, 2.0f);
  EXPECT_EQ(multiplier.Apply(3), divisor.Apply(3));
  EXPECT_EQ(Nvfp4Global(1536.0f, ScaleRule::kFourOverSix, GlobalScale::Kind::kMultiplier).value,
            1.0f);
  const std::byte code{0x38};  // 1.0
  float scale = 0;
  DecodeScales(Format::kUE4M3, divisor, &code, 1, &scale);
  EXPECT_EQ(scale, 0.5f);
}

// A block far below the largest one keeps a scale of its own: it never underflows to zero.
TEST(BlockQuant, NvfpBlockScalesNeverVanish) {
  std::vector<float> values(32, 0.0f);
  values[0] = 1e4f;
  values[16] = 1e-6f;
  for (const ScaleRule rule : {ScaleRule::kAbsmax, ScaleRule::kFourOverSix, ScaleRule::kSweep}) {
    const QuantCase got = Recode(OptionsFor(Scheme::kNvfp4, rule, values), values, 32);
    EXPECT_GT(got.effective[1], 0.0f) << NameOf(rule);
    EXPECT_NE(std::to_integer<int>(got.scales[1]), 0) << NameOf(rule);
  }
}

TEST(BlockQuant, BlocksOfRowsShareAScale) {
  std::vector<float> values(256 * 256, 1.0f);
  values[130 * 256 + 5] = 896.0f;  // the block of rows 128..255, columns 0..127
  const QuantCase got = Recode({.spec = SpecOf(Scheme::kFp8Block)}, values, 256);
  ASSERT_EQ(got.effective.size(), 4u);
  EXPECT_EQ(got.effective[0], 1.0f / 448.0f);
  EXPECT_EQ(got.effective[1], 1.0f / 448.0f);
  EXPECT_EQ(got.effective[2], 2.0f);
  EXPECT_EQ(got.effective[3], 1.0f / 448.0f);
  EXPECT_EQ(got.decoded[130 * 256 + 5], 896.0f);
}

// Rows decoded from the middle of a block of rows take the same scales.
TEST(BlockQuant, DecodingMayBeginInsideABlockOfRows) {
  const std::vector<float> values = Gaussian(300 * 192, 3);
  const QuantCase whole = Recode({.spec = SpecOf(Scheme::kFp8Block)}, values, 192);
  std::vector<float> part(150 * 192);
  DecodeRowsScalar({SpecOf(Scheme::kFp8Block), whole.codes.data() + 100 * 192, 150, 192, 100,
                    whole.effective.data()},
                   part.data());
  EXPECT_EQ(std::memcmp(part.data(), whole.decoded.data() + 100 * 192, part.size() * 4), 0);
}

}  // namespace
}  // namespace blockscale
