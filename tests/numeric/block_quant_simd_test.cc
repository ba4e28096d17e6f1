// The fast side of block_quant.h gives the bits of the scalar one, with every instruction set.
#include <gtest/gtest.h>
#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
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

constexpr std::byte kPoison{0xA5};
constexpr size_t kGuard = 64;  // bytes or floats behind what a call may write

void ForEachTarget(const std::function<void()>& check) {
  const auto targets = AvailableTargets();
  ASSERT_FALSE(targets.empty());
  for (const int64_t target : targets) {
    SCOPED_TRACE(hwy::TargetName(target));
    const ForcedTarget forced(target);
    ASSERT_STREQ(BlockQuantTarget(), hwy::TargetName(target));
    check();
  }
}

uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }

// The first place where two lists differ in a bit; their size if none does. Of two NaNs multiplied
// either may go on: with `any_nan` all are alike.
size_t FirstDifference(const std::vector<float>& a, const std::vector<float>& b, bool any_nan) {
  EXPECT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    if (Bits(a[i]) != Bits(b[i]) && !(any_nan && std::isnan(a[i]) && std::isnan(b[i]))) return i;
  return a.size();
}

void ExpectSameFloats(const std::vector<float>& a, const std::vector<float>& b,
                      bool any_nan = false) {
  const size_t at = FirstDifference(a, b, any_nan);
  if (at < a.size())
    ADD_FAILURE() << "at " << at << ": " << a[at] << " and " << b[at] << std::hex << ", bits "
                  << Bits(a[at]) << " and " << Bits(b[at]);
}

// What a call of EncodeRows wrote, with poison behind it.
struct Encoded {
  std::vector<std::byte> codes, scales;
  std::vector<float> effective;
};

template <typename Function>
Encoded Encode(Function encode, const EncodeOptions& options, const std::vector<float>& values,
               size_t columns) {
  const QuantSpec& spec = options.spec;
  const size_t rows = values.size() / columns;
  const size_t grid = spec.grid_rows(rows) * spec.grid_columns(columns);
  Encoded out;
  out.codes.assign(rows * spec.row_bytes(columns) + kGuard, kPoison);
  out.scales.assign(grid * spec.scale_bytes() + kGuard, kPoison);
  out.effective.assign(grid + kGuard, -7.0f);
  const bool stored = spec.scheme != Scheme::kFp8Tensor;
  encode(options, values.data(), rows, columns,
         EncodedRows{out.codes.data(), stored ? out.scales.data() : nullptr, out.effective.data()});
  return out;
}

void ExpectSameBytes(const std::vector<std::byte>& a, const std::vector<std::byte>& b,
                     const char* what) {
  ASSERT_EQ(a.size(), b.size());
  const auto [one, two] = std::mismatch(a.begin(), a.end(), b.begin());
  if (one != a.end())
    ADD_FAILURE() << what << " at byte " << one - a.begin() << " of " << a.size() - kGuard << ": "
                  << std::to_integer<int>(*one) << " and " << std::to_integer<int>(*two);
}

void ExpectSameEncoding(const EncodeOptions& options, const std::vector<float>& values,
                        size_t columns) {
  const Encoded scalar = Encode(EncodeRowsScalar, options, values, columns);
  ForEachTarget([&] {
    const Encoded fast = Encode(EncodeRows, options, values, columns);
    ExpectSameFloats(fast.effective, scalar.effective);
    ExpectSameBytes(fast.scales, scalar.scales, "scales");
    ExpectSameBytes(fast.codes, scalar.codes, "codes");
  });
}

// Every scheme as it is usual, and with what a checkpoint may vary.
std::vector<QuantSpec> AllSpecs() {
  std::vector<QuantSpec> specs;
  for (const Scheme scheme : AllScheme()) specs.push_back(SpecOf(scheme));
  const auto add = [&](Scheme scheme, Format scale, uint64_t rows, uint64_t columns) {
    QuantSpec spec = SpecOf(scheme);
    spec.scale = scale;
    spec.block_rows = rows;
    spec.block_columns = columns;
    specs.push_back(spec);
  };
  add(Scheme::kFp8Block, Format::kE8M0, 128, 128);
  add(Scheme::kFp8Block, Format::kBF16, 4, 48);
  add(Scheme::kFp8Block, Format::kF32, 3, 7);  // no vector fits: the scalar side
  add(Scheme::kFp8Channel, Format::kFP16, 1, 0);
  add(Scheme::kInt8Channel, Format::kBF16, 1, 0);
  add(Scheme::kInt4Group, Format::kBF16, 1, 32);
  add(Scheme::kInt4Group, Format::kFP16, 1, 64);
  add(Scheme::kInt4Group, Format::kF32, 1, 256);
  add(Scheme::kMxfp8, Format::kE8M0, 1, 64);
  add(Scheme::kNvfp4, Format::kUE4M3, 1, 32);
  return specs;
}

bool IsSlow(ScaleRule rule) { return rule == ScaleRule::kMse || rule == ScaleRule::kSweep; }

// All that can be encoded: each spec, rule, range of INT8 and kind of global scale.
void ForEachOptions(const std::vector<float>& values,
                    const std::function<void(const EncodeOptions&)>& run) {
  for (const QuantSpec& spec : AllSpecs()) {
    for (const ScaleRule rule : AllScaleRule()) {
      if (!RuleFits(rule, spec.scheme) || rule == ScaleRule::kExactCast) continue;
      if (spec.scale == Format::kE8M0 && rule == ScaleRule::kAbsmax) continue;
      EncodeOptions options = OptionsFor(spec.scheme, rule, values);
      options.spec = spec;
      SCOPED_TRACE(::testing::Message()
                   << NameOf(spec.scheme) << " " << NameOf(rule) << ", scales "
                   << NameOf(spec.scale) << ", " << spec.block_rows << "x" << spec.block_columns);
      run(options);
      if (spec.element == Format::kInt8) {
        options.int8_range = Int8Range::k128;
        run(options);
      }
      if (spec.scheme == Scheme::kNvfp4) {
        const float amax = LargestMagnitudeScalar(values.data(), values.size());
        options.global = Nvfp4Global(amax, rule, GlobalScale::Kind::kDivisor);
        run(options);
      }
    }
  }
}

// Kinds of values: what weights look like, and what they had better not.
enum class Kind { kGaussian, kAnyExponent, kSubnormal, kHuge, kSparse, kGrid, kZero };

std::vector<float> Values(Kind kind, size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) {
    const float sign = random() % 2 == 0 ? 1.0f : -1.0f;
    switch (kind) {
      case Kind::kGaussian:
        value = normal(random);
        break;
      case Kind::kAnyExponent:
        do {
          value = std::bit_cast<float>(static_cast<uint32_t>(random()));
        } while (!std::isfinite(value));
        break;
      case Kind::kSubnormal:
        value = std::bit_cast<float>(static_cast<uint32_t>(random()) & 0x80FFFFFF);
        break;
      case Kind::kHuge:
        value = sign * std::ldexp(1.0f + 1e-6f * static_cast<float>(random() % 900000),
                                  127 - static_cast<int>(random() % 12));
        break;
      case Kind::kSparse:
        value = random() % 9 == 0 ? normal(random) : sign * 0.0f;
        break;
      case Kind::kGrid:
        value = sign * 0.25f * static_cast<float>(random() % 32);
        break;
      case Kind::kZero:
        value = sign * 0.0f;
        break;
    }
  }
  return values;
}

constexpr Kind kAllKinds[] = {Kind::kGaussian, Kind::kAnyExponent, Kind::kSubnormal, Kind::kHuge,
                              Kind::kSparse,   Kind::kGrid,        Kind::kZero};

struct Shape {
  size_t rows, columns;
};

TEST(BlockQuantSimd, EveryShapeIsEncodedAlike) {
  for (const Shape& shape : std::vector<Shape>{{1, 1},
                                               {2, 7},
                                               {3, 15},
                                               {2, 16},
                                               {1, 17},
                                               {3, 31},
                                               {2, 48},
                                               {2, 90},
                                               {1, 127},
                                               {2, 129},
                                               {130, 33},
                                               {5, 256},
                                               {2, 300},
                                               {1, 1000}}) {
    SCOPED_TRACE(::testing::Message() << shape.rows << "x" << shape.columns);
    const auto values =
        Values(Kind::kGaussian, shape.rows * shape.columns, static_cast<unsigned>(shape.columns));
    ForEachOptions(values, [&](const EncodeOptions& options) {
      if (IsSlow(options.rule) && shape.rows > 5) return;
      ExpectSameEncoding(options, values, shape.columns);
    });
  }
}

TEST(BlockQuantSimd, EveryKindOfValueIsEncodedAlike) {
  for (const Kind kind : kAllKinds) {
    SCOPED_TRACE(::testing::Message() << "kind " << static_cast<int>(kind));
    const auto values = Values(kind, 4 * 400, 7);
    ForEachOptions(values,
                   [&](const EncodeOptions& options) { ExpectSameEncoding(options, values, 400); });
  }
}

// Blocks of all magnitudes in one matrix: scales at the ends of their formats.
TEST(BlockQuantSimd, BlocksFarApartAreEncodedAlike) {
  std::mt19937 random(3);
  auto values = Values(Kind::kGaussian, 6 * 1024, 5);
  for (size_t i = 0; i < values.size(); i += 16) {
    const int exponent = static_cast<int>(random() % 160) - 140;
    for (size_t j = 0; j < 16; ++j)
      values[i + j] = i % 96 == 0 ? 0.0f : std::ldexp(values[i + j], exponent);
  }
  ForEachOptions(values,
                 [&](const EncodeOptions& options) { ExpectSameEncoding(options, values, 1024); });
}

// Global scales that do not belong to the values, up to the ends of FP32.
TEST(BlockQuantSimd, AnyGlobalScaleIsEncodedAlike) {
  for (const float size : {1e-44f, 1e-30f, 1.0f, 1e30f}) {
    auto values = Values(Kind::kGaussian, 2 * 336, 9);
    for (float& value : values) value *= size;
    for (const ScaleRule rule : {ScaleRule::kAbsmax, ScaleRule::kFourOverSix, ScaleRule::kSweep})
      for (const auto kind :
           {GlobalScale::Kind::kNone, GlobalScale::Kind::kMultiplier, GlobalScale::Kind::kDivisor})
        for (const float global : {std::numeric_limits<float>::min(), 1e-20f, 0.01f, 1.0f, 77.0f,
                                   1e25f, std::numeric_limits<float>::max()}) {
          SCOPED_TRACE(::testing::Message() << NameOf(rule) << " " << size << " " << global);
          ExpectSameEncoding({.spec = SpecOf(Scheme::kNvfp4),
                              .rule = rule,
                              .global = {kind, kind == GlobalScale::Kind::kNone ? 1.0f : global}},
                             values, 336);
        }
  }
}

// One element of a block every FP32 exponent and around every midpoint between codes.
TEST(BlockQuantSimd, MidpointsAndTheirNeighboursAreEncodedAlike) {
  std::vector<float> values;
  for (int exponent = -20; exponent <= 9; ++exponent)
    for (int sixteenth = 16; sixteenth < 32; ++sixteenth)
      for (const float off : {0.0f, -1.0f, 1.0f}) {
        float value = std::ldexp(static_cast<float>(sixteenth), exponent - 4);
        if (off != 0) value = std::nextafter(value, off * std::numeric_limits<float>::infinity());
        values.push_back(values.size() % 2 == 0 ? value : -value);
      }
  ASSERT_EQ(values.size(), 1440u);
  for (const Scheme scheme :
       {Scheme::kFp8Tensor, Scheme::kMxfp8, Scheme::kMxfp4, Scheme::kNvfp4, Scheme::kInt8Channel,
        Scheme::kInt4Group, Scheme::kBF16, Scheme::kFP16}) {
    EncodeOptions options = OptionsFor(scheme, DefaultRule(scheme), values);
    options.global.value = 1;
    ExpectSameEncoding(options, values, 1440);
  }
}

// Two neighbouring floats for one value of a block between which the search changes its mind: there
// two scales cost the same but for the rounding of sums. Empty if these ends agree.
std::vector<float> Tip(const EncodeOptions& options, std::vector<float> block, size_t at,
                       uint32_t low, uint32_t high) {
  const auto chosen = [&](uint32_t bits) {
    block[at] = std::bit_cast<float>(bits);
    return Encode(EncodeRowsScalar, options, block, block.size()).effective[0];
  };
  const float first = chosen(low);
  if (chosen(high) == first) return {};
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    (chosen(middle) == first ? low : high) = middle;
  }
  std::vector<float> blocks;
  for (uint32_t bits = low - 3; bits <= high + 3; ++bits) {
    block[at] = std::bit_cast<float>(bits);
    blocks.insert(blocks.end(), block.begin(), block.end());
  }
  return blocks;
}

// Searches depend on each rounding in the order of their sums where two scales are nearly alike.
TEST(BlockQuantSimd, SearchesTipAtTheSamePlace) {
  const std::pair<Scheme, ScaleRule> searches[] = {
      {Scheme::kMxfp4, ScaleRule::kMse},         {Scheme::kMxfp8, ScaleRule::kMse},
      {Scheme::kNvfp4, ScaleRule::kFourOverSix}, {Scheme::kNvfp4, ScaleRule::kSweep},
      {Scheme::kInt4Group, ScaleRule::kMse},     {Scheme::kInt8Channel, ScaleRule::kMse}};
  for (const auto& [scheme, rule] : searches) {
    SCOPED_TRACE(::testing::Message() << NameOf(scheme) << " " << NameOf(rule));
    EncodeOptions options{.spec = SpecOf(scheme), .rule = rule};
    options.global = {GlobalScale::Kind::kMultiplier, 0.01f};
    const size_t width = scheme == Scheme::kInt8Channel ? 200 : options.spec.block_columns;
    std::vector<float> values;
    // With powers of two the largest value decides, else another, since scales follow the largest.
    const bool powers = options.spec.scale == Format::kE8M0;
    for (unsigned seed = 0; seed < 60; ++seed) {
      auto block = Values(Kind::kGaussian, width, 1000 + seed);
      for (float& value : block)
        value = std::clamp(value * (0.4f + 0.02f * static_cast<float>(seed)), -2.9f, 2.9f);
      block[seed % width] = 3 + static_cast<float>(seed) / 64;
      for (float low = powers ? 3.0f : 0.1f; low < (powers ? 3.9f : 2.8f); low += 0.1f) {
        const size_t at = powers ? seed % width : (seed + 5) % width;
        const auto tip = Tip(options, block, at, Bits(low), Bits(low + 0.1f));
        values.insert(values.end(), tip.begin(), tip.end());
        if (!tip.empty()) break;
      }
    }
    EXPECT_GT(values.size(), 30 * width);
    ExpectSameEncoding(options, values, scheme == Scheme::kInt8Channel ? width : values.size());
  }
}

// Plain formats take what is no number, too.
TEST(BlockQuantSimd, PlainFormatsTakeNans) {
  auto values = Values(Kind::kAnyExponent, 999, 21);
  for (size_t i = 0; i < values.size(); i += 3)
    // Quiet ones: passing a signalling NaN through a register may quieten it.
    values[i] = std::bit_cast<float>(0x7FC00000u | static_cast<uint32_t>(i * 12345) % 0x400000u |
                                     (i % 2 == 0 ? 0x80000000u : 0u));
  for (const Scheme scheme : {Scheme::kF32, Scheme::kBF16, Scheme::kFP16})
    ExpectSameEncoding({.spec = SpecOf(scheme)}, values, 333);
}

// A matrix of random bytes, and scales of `scale`'s kind.
struct CodeCase {
  QuantSpec spec;
  size_t columns = 0;
  std::vector<std::byte> codes;
  std::vector<float> scales;

  CodeCase(const QuantSpec& spec_, size_t rows, size_t columns_, unsigned seed)
      : spec(spec_), columns(columns_) {
    std::mt19937 random(seed);
    codes.resize(rows * spec.row_bytes(columns));
    for (std::byte& code : codes) code = static_cast<std::byte>(random());
    scales.resize(spec.grid_rows(rows) * spec.grid_columns(columns));
    for (float& scale : scales)
      scale = std::bit_cast<float>(static_cast<uint32_t>(random()) & 0x7FFFFFFFu);
    for (size_t i = 0; i < scales.size(); i += 2)
      scales[i] = std::ldexp(1.0f, static_cast<int>(random() % 40) - 20);
  }

  template <typename Function>
  std::vector<float> Decode(Function decode, size_t first, size_t rows, size_t shift) const {
    std::vector<float> out(rows * columns + kGuard + shift, -7.0f);
    const float* first_scale = scales.data() + spec.grid_row(first) * spec.grid_columns(columns);
    decode(QuantRows{spec, codes.data() + first * spec.row_bytes(columns), rows, columns, first,
                     first_scale},
           out.data() + shift);
    return out;
  }
};

TEST(BlockQuantSimd, EveryCodeAndShapeIsDecodedAlike) {
  for (const QuantSpec& spec : AllSpecs()) {
    for (const Shape& shape : std::vector<Shape>{
             {1, 1}, {2, 15}, {3, 33}, {140, 144}, {2, 511}, {3, 1024}, {131, 1100}}) {
      SCOPED_TRACE(::testing::Message()
                   << NameOf(spec.scheme) << " blocks of " << spec.block_columns << ", "
                   << shape.rows << "x" << shape.columns);
      const CodeCase matrix(spec, shape.rows, shape.columns, 17);
      for (const size_t first : {size_t{0}, shape.rows / 2}) {
        const size_t rows = shape.rows - first;
        const auto scalar = matrix.Decode(DecodeRowsScalar, first, rows, 1);
        ForEachTarget(
            [&] { ExpectSameFloats(matrix.Decode(DecodeRows, first, rows, 1), scalar, true); });
      }
    }
  }
}

// With an ordinary scale even the signs of NaNs and zeros are kept.
TEST(BlockQuantSimd, NansAndZerosKeepTheirSigns) {
  for (const QuantSpec& spec : AllSpecs()) {
    SCOPED_TRACE(NameOf(spec.scheme));
    CodeCase matrix(spec, 2, 4096, 5);
    for (float& scale : matrix.scales) scale = 0.37f;
    const auto scalar = matrix.Decode(DecodeRowsScalar, 0, 2, 0);
    ForEachTarget([&] { ExpectSameFloats(matrix.Decode(DecodeRows, 0, 2, 0), scalar); });
    if (spec.element != Format::kE4M3) continue;
    EXPECT_TRUE(std::any_of(scalar.begin(), scalar.end(),
                            [](float v) { return std::isnan(v) && std::signbit(v); }));
    EXPECT_TRUE(std::any_of(scalar.begin(), scalar.end(),
                            [](float v) { return v == 0 && std::signbit(v); }));
  }
}

// Large results go past the caches where they are aligned.
TEST(BlockQuantSimd, LargeResultsAreTheSame) {
  for (const Scheme scheme :
       {Scheme::kMxfp4, Scheme::kFp8Block, Scheme::kInt8Channel, Scheme::kBF16}) {
    const CodeCase matrix(SpecOf(scheme), 1100, 4096, 29);
    const auto scalar = matrix.Decode(DecodeRowsScalar, 0, 1100, 0);
    ForEachTarget([&] {
      const auto fast = matrix.Decode(DecodeRows, 0, 1100, 0);
      ExpectSameFloats(fast, scalar, true);
      hwy::AlignedFreeUniquePtr<float[]> aligned = hwy::AllocateAligned<float>(1100 * 4096);
      DecodeRows({matrix.spec, matrix.codes.data(), 1100, 4096, 0, matrix.scales.data()},
                 aligned.get());
      ExpectSameFloats(std::vector<float>(aligned.get(), aligned.get() + 1100 * 4096),
                       std::vector<float>(scalar.begin(), scalar.end() - kGuard), true);
    });
  }
}

TEST(BlockQuantSimd, EveryScaleCodeIsDecodedAlike) {
  std::vector<std::byte> stored(4 * 65536);
  for (size_t i = 0; i < 65536; ++i) {  // every code of two bytes, and bytes that go round
    const auto word = static_cast<uint16_t>(i);
    std::memcpy(&stored[2 * i], &word, 2);
    std::memcpy(&stored[131072 + 2 * i], &word, 2);
  }
  for (const Format format : {Format::kF32, Format::kBF16, Format::kFP16, Format::kE4M3,
                              Format::kUE4M3, Format::kE8M0, Format::kE5M2})
    for (const auto kind :
         {GlobalScale::Kind::kNone, GlobalScale::Kind::kMultiplier, GlobalScale::Kind::kDivisor})
      for (const size_t count : {size_t{65533}, size_t{3}, size_t{0}}) {
        SCOPED_TRACE(::testing::Message() << NameOf(format) << " " << static_cast<int>(kind));
        const GlobalScale global = {kind, kind == GlobalScale::Kind::kNone ? 1.0f : 0.0123f};
        std::vector<float> scalar(count + kGuard, -7.0f), fast = scalar;
        DecodeScalesScalar(format, global, stored.data(), count, scalar.data());
        ForEachTarget([&] {
          std::fill(fast.begin(), fast.end(), -7.0f);
          DecodeScales(format, global, stored.data(), count, fast.data());
          ExpectSameFloats(fast, scalar);
        });
      }
}

TEST(BlockQuantSimd, LargestMagnitudeIsTheSame) {
  for (const Kind kind : kAllKinds)
    for (const size_t count : {0, 1, 5, 16, 63, 64, 65, 1000}) {
      auto values = Values(kind, count, 31);
      for (const int nans : {0, 1, 2}) {
        for (int i = 0; i < nans && count > 4; ++i)
          values[count / 2 + static_cast<size_t>(i)] = std::bit_cast<float>(0xFFC00001u + i);
        const float scalar = LargestMagnitudeScalar(values.data(), count);
        ForEachTarget(
            [&] { EXPECT_EQ(Bits(LargestMagnitude(values.data(), count)), Bits(scalar)); });
      }
    }
}

bool SameSum(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

void ExpectSameLoss(const RowsLoss& a, const RowsLoss& b) {
  EXPECT_PRED2(SameSum, a.sum_squares, b.sum_squares);
  EXPECT_PRED2(SameSum, a.sum_squared_errors, b.sum_squared_errors);
  EXPECT_EQ(Bits(a.largest_error), Bits(b.largest_error)) << a.largest_error;
  EXPECT_EQ(a.clipped, b.clipped);
  EXPECT_EQ(a.zero_rows, b.zero_rows);
  EXPECT_EQ(a.inexact_blocks, b.inexact_blocks);
}

TEST(BlockQuantSimd, LossesAreTheSame) {
  for (const Kind kind : kAllKinds) {
    auto values = Values(kind, 9 * 421, 41);
    std::fill_n(values.begin() + 421, 421, 0.0f);
    ForEachOptions(values, [&](const EncodeOptions& options) {
      if (IsSlow(options.rule)) return;
      const Encoded encoded = Encode(EncodeRows, options, values, 421);
      for (const size_t first : {size_t{0}, size_t{2}}) {
        const QuantSpec& spec = options.spec;
        const QuantRows rows = {
            spec,      encoded.codes.data() + first * spec.row_bytes(421),
            9 - first, 421,
            first,     encoded.effective.data() + spec.grid_row(first) * spec.grid_columns(421)};
        std::vector<float> decoded((9 - first) * 421);
        DecodeRowsScalar(rows, decoded.data());
        if (kind == Kind::kSparse && first != 0)  // as from a NaN code
          for (size_t i = 3; i < decoded.size(); i += 99) decoded[i] = std::nanf("");
        const float* from = values.data() + first * 421;
        const RowsLoss scalar = MeasureRowsScalar(rows, from, decoded.data());
        EXPECT_EQ(scalar.zero_rows, kind == Kind::kZero ? 9 - first : first == 0 ? 1u : 0u);
        ForEachTarget([&] { ExpectSameLoss(MeasureRows(rows, from, decoded.data()), scalar); });
      }
    });
  }
}

}  // namespace
}  // namespace blockscale
