#include "numeric/scale_search.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace blockscale {
namespace {

constexpr float kSmallestNormal = std::numeric_limits<float>::min();
constexpr size_t kLanes = 16;
constexpr float kE2m1Largest = 6.0f;

float LargestElement(Format element) { return element == Format::kE2M1 ? kE2m1Largest : 448.0f; }

float LargestOf(const BlockValues& block) {
  float largest = 0;
  for (size_t row = 0; row < block.rows; ++row)
    largest =
        std::max(largest, LargestMagnitudeScalar(block.data + row * block.stride, block.columns));
  return largest;
}

// A scale in the format that it is stored in. Below the smallest normal FP32 precision would go.
BlockScale Store(Format format, float scale) {
  scale = std::max(scale, kSmallestNormal);
  switch (format) {
    case Format::kBF16: {
      const uint16_t code = BF16::Encode(scale);
      return {code, BF16::Decode(code)};
    }
    case Format::kFP16: {
      const uint16_t code = std::max<uint16_t>(FP16::Encode(scale), 1);
      return {code, FP16::Decode(code)};
    }
    default:
      return {std::bit_cast<uint32_t>(scale), scale};
  }
}

BlockScale StorePower(Format format, int exponent) {
  if (format != Format::kE8M0) return Store(format, PowerOfTwo(exponent));
  return {static_cast<uint32_t>(exponent + 127), PowerOfTwo(exponent)};
}

// What a scale would cost a block (block_quant.h, "Searching").
class Search {
 public:
  Search(const EncodeOptions& options, const BlockValues& block, float amax)
      : options_(options), block_(block), norm_(PowerOfTwo(std::min(127, -FloorLog2(amax)))) {}

  float Error(float scale) const {
    const float t = scale * norm_, inverse = 1.0f / t;
    std::array<float, kLanes> lanes{};
    size_t place = 0;
    for (size_t row = 0; row < block_.rows; ++row) {
      for (size_t column = 0; column < block_.columns; ++column, ++place) {
        const float y = block_.at(row, column) * norm_;
        const float q = RoundToElement(options_.spec.element, y * inverse, options_.int8_range);
        const float d = y - q * t;
        lanes[place % kLanes] += d * d;
      }
    }
    for (size_t half = kLanes / 2; half > 0; half /= 2)
      for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    return lanes[0];
  }

  // Keeps the better one.
  void Try(const BlockScale& scale) {
    const float error = Error(scale.value);
    if (error < least_) {
      least_ = error;
      best_ = scale;
    }
  }
  const BlockScale& best() const { return best_; }

 private:
  const EncodeOptions& options_;
  const BlockValues& block_;
  float norm_;
  float least_ = std::numeric_limits<float>::infinity();
  BlockScale best_;
};

BlockScale ChooseMx(const EncodeOptions& options, const BlockValues& block, float amax) {
  const Format element = options.spec.element;
  if (options.rule != ScaleRule::kMse)
    return StorePower(options.spec.scale, MxExponent(amax, element, options.rule));
  const int middle = MxExponent(amax, element, ScaleRule::kFloor);
  Search search(options, block, amax);
  for (int exponent = middle - 1; exponent <= middle + 1; ++exponent)
    search.Try(StorePower(options.spec.scale, std::clamp(exponent, -127, 127)));
  return search.best();
}

BlockScale NvfpScale(const GlobalScale& global, uint8_t code) {
  return {code, global.Apply(UE4M3::Decode(code))};
}

// The code of the scale that brings `amax` to `top`. Never 0: a block of numbers would vanish.
uint8_t NvfpCode(const GlobalScale& global, float amax, float top) {
  const float scale = amax / top;
  const float wanted =
      global.kind == GlobalScale::Kind::kDivisor ? scale * global.value : scale / global.value;
  return std::max<uint8_t>(UE4M3::Encode(wanted), 1);
}

BlockScale ChooseNvfp4(const EncodeOptions& options, const BlockValues& block, float amax) {
  const GlobalScale& global = options.global;
  const BlockScale usual = NvfpScale(global, NvfpCode(global, amax, kE2m1Largest));
  if (options.rule == ScaleRule::kAbsmax) return usual;
  Search search(options, block, amax);
  if (options.rule == ScaleRule::kFourOverSix) {
    search.Try(usual);
    search.Try(NvfpScale(global, NvfpCode(global, amax, 4.0f)));
  } else {
    for (uint32_t code = 1; code <= UE4M3::kLargest; ++code)
      search.Try(NvfpScale(global, static_cast<uint8_t>(code)));
  }
  return search.best();
}

BlockScale ChooseInteger(const EncodeOptions& options, const BlockValues& block, float amax) {
  const float usual = amax / IntegerDivisor(options);
  if (options.rule == ScaleRule::kAbsmax) return Store(options.spec.scale, usual);
  Search search(options, block, amax);
  for (int step = 0; step < kShrinkSteps; ++step)
    search.Try(Store(options.spec.scale, usual * (static_cast<float>(100 - step) / 100.0f)));
  return search.best();
}

}  // namespace

float PowerOfTwo(int exponent) { return std::ldexp(1.0f, exponent); }

int FloorLog2(float value) {
  int exponent = 0;
  std::frexp(value, &exponent);
  return exponent - 1;
}

int MxExponent(float amax, Format element, ScaleRule rule) {
  const int top =
      element == Format::kE2M1 ? 2 : 8;  // of the largest element: 1.5 * 2^2, 1.75 * 2^8
  const int exponent = FloorLog2(amax);
  const float mantissa = std::ldexp(amax, -exponent);
  const bool up = rule == ScaleRule::kCeil   ? mantissa > (element == Format::kE2M1 ? 1.5f : 1.75f)
                  : rule == ScaleRule::kEven ? mantissa >= 1.75f
                                             : false;
  return std::clamp(exponent - top + (up ? 1 : 0), -127, 127);
}

float IntegerDivisor(const EncodeOptions& options) {
  if (options.spec.element == Format::kInt4) return 7.5f;
  return options.int8_range == Int8Range::k127 ? 127.0f : 127.5f;
}

BlockScale ZeroScale(const EncodeOptions& options) {
  switch (options.spec.scale) {
    case Format::kE8M0:
      return {0, PowerOfTwo(-127)};
    case Format::kUE4M3:
      return NvfpScale(options.global, UE4M3::Encode(1.0f));
    default:
      return Store(options.spec.scale,
                   options.spec.element == Format::kInt8 && options.int8_range == Int8Range::k128
                       ? 0x1p-23f
                       : 1.0f);
  }
}

BlockScale ChooseScale(const EncodeOptions& options, const BlockValues& block) {
  if (options.spec.scheme == Scheme::kFp8Tensor) return {0, options.global.value};
  const float amax = LargestOf(block);
  if (amax == 0) return ZeroScale(options);
  switch (options.spec.element) {
    case Format::kE2M1:
      return options.spec.scheme == Scheme::kNvfp4 ? ChooseNvfp4(options, block, amax)
                                                   : ChooseMx(options, block, amax);
    case Format::kE4M3:
      if (options.rule == ScaleRule::kAbsmax)
        return Store(options.spec.scale, amax / LargestElement(Format::kE4M3));
      return ChooseMx(options, block, amax);
    default:
      return ChooseInteger(options, block, amax);
  }
}

float RoundToElement(Format element, float value, Int8Range range) {
  switch (element) {
    case Format::kE2M1:
      return E2M1::Decode(E2M1::Encode(value));
    case Format::kE4M3:
      return E4M3::Decode(E4M3::Encode(value));
    case Format::kInt4:
      return Int4::Decode(Int4::Encode(value));
    case Format::kInt8:
      return std::max<float>(Int8::Encode(value), range == Int8Range::k127 ? -127.0f : -128.0f);
    case Format::kBF16:
      return BF16::Decode(BF16::Encode(value));
    case Format::kFP16:
      return FP16::Decode(FP16::Encode(value));
    default:
      return value;
  }
}

GlobalScale Nvfp4Global(float amax, ScaleRule rule, GlobalScale::Kind kind) {
  const float top = kE2m1Largest * (rule == ScaleRule::kFourOverSix ? 256.0f : 448.0f);
  if (amax == 0) return {kind, 1.0f};
  const bool divisor = kind == GlobalScale::Kind::kDivisor;
  const float value = divisor ? top / amax : amax / top;
  return {kind, std::clamp(value, kSmallestNormal, std::numeric_limits<float>::max())};
}

GlobalScale TensorScale(float amax, ScaleRule rule) {
  constexpr auto kKind = GlobalScale::Kind::kMultiplier;
  if (amax == 0) return {kKind, 1.0f};
  if (rule == ScaleRule::kCeil)
    return {kKind, std::max(PowerOfTwo(MxExponent(amax, Format::kE4M3, rule)), kSmallestNormal)};
  return {kKind, std::max(amax / 448.0f, kSmallestNormal)};
}

}  // namespace blockscale
