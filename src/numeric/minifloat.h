// Small binary floating-point formats from one template: how a code is decoded exactly into FP32,
// and how an FP32 value is rounded to the nearest code, ties to even.
//
//   sign | exponent (E bits, bias B) | mantissa (M bits)
//   exponent 0, the subnormals: mantissa * 2^(1 - B - M)
//   otherwise: (1 + mantissa / 2^M) * 2^(exponent - B)
//
// What the highest codes mean differs from format to format and is the template's last argument.
// Sources: OCP Microscaling 1.0 (E2M1, E4M3, E5M2, E8M0), IEEE 754 (FP16), and the golden vectors
// of tests/golden, which ml_dtypes computed.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace blockscale {

// What stands at the top of a format's codes.
enum class TopCodes {
  kFinite,  // numbers only: E2M1
  kNan,     // all ones is NaN, no infinity: E4M3 ("fn")
  kIeee,    // the highest exponent holds infinity and NaNs: E5M2, FP16, BF16
};

// What becomes of a value beyond the largest code.
enum class Overflow {
  kSaturate,  // the largest finite code
  kIeee,      // infinity, or NaN where there is none; E2M1 saturates all the same
};

template <int kExponentBits, int kMantissaBits, TopCodes kTop, bool kSigned = true,
          typename CodeType = uint8_t>
struct Minifloat {
  using Code = CodeType;
  static constexpr int kMagnitudeBits = kExponentBits + kMantissaBits;
  static constexpr int kBits = kMagnitudeBits + (kSigned ? 1 : 0);
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr uint32_t kMagnitudeMask = (uint32_t{1} << kMagnitudeBits) - 1;
  static constexpr uint32_t kMantissaMask = (uint32_t{1} << kMantissaBits) - 1;
  static constexpr uint32_t kInfinity = kMagnitudeMask & ~kMantissaMask;  // kIeee only
  static constexpr uint32_t kLargest = kTop == TopCodes::kFinite ? kMagnitudeMask
                                       : kTop == TopCodes::kNan  ? kMagnitudeMask - 1
                                                                 : kInfinity - 1;

  static constexpr bool IsNan(Code code) {
    const uint32_t magnitude = code & kMagnitudeMask;
    if constexpr (kTop == TopCodes::kFinite) return false;
    if constexpr (kTop == TopCodes::kNan) return magnitude == kMagnitudeMask;
    return magnitude > kInfinity;
  }

  // Exact for every code; NaN codes give a quiet NaN with their sign.
  static float Decode(Code code) {
    const uint32_t magnitude = code & kMagnitudeMask;
    const bool negative = kSigned && ((code >> kMagnitudeBits) & 1) != 0;
    float value = 0;
    if (IsNan(code)) {
      value = std::numeric_limits<float>::quiet_NaN();
    } else if (kTop == TopCodes::kIeee && magnitude == kInfinity) {
      value = std::numeric_limits<float>::infinity();
    } else {
      const int exponent = static_cast<int>(magnitude >> kMantissaBits);
      const uint32_t mantissa = magnitude & kMantissaMask;
      const uint32_t whole = exponent == 0 ? mantissa : mantissa + kMantissaMask + 1;
      value = std::ldexp(static_cast<float>(whole),
                         (exponent == 0 ? 1 : exponent) - kBias - kMantissaBits);
    }
    return std::copysign(value, negative ? -1.0f : 1.0f);
  }

  // Nearest, ties to even. NaN gives the format's NaN, or for E2M1, which has none, its largest
  // code; a negative value in an unsigned format gives 0.
  static Code Encode(float value, Overflow overflow = Overflow::kSaturate) {
    const uint32_t sign =
        kSigned && std::signbit(value) ? uint32_t{1} << kMagnitudeBits : uint32_t{0};
    if (std::isnan(value)) {
      const uint32_t nan =
          kTop == TopCodes::kIeee ? kInfinity | (kMantissaMask + 1) / 2 : kMagnitudeMask;
      return static_cast<Code>(sign | nan);
    }
    if (!kSigned && value < 0) return 0;
    const uint32_t magnitude = RoundMagnitude(std::fabs(value));
    if (magnitude <= kLargest) return static_cast<Code>(sign | magnitude);
    if (overflow == Overflow::kSaturate || kTop == TopCodes::kFinite)
      return static_cast<Code>(sign | kLargest);
    return static_cast<Code>(sign | (kTop == TopCodes::kNan ? kMagnitudeMask : kInfinity));
  }

 private:
  // The code of the nearest magnitude as if exponents went on for ever; infinity stays far above.
  static uint32_t RoundMagnitude(float value) {
    if (value == 0) return 0;  // it has no exponent
    if (std::isinf(value)) return kMagnitudeMask + 1;
    int exponent = 0;
    std::frexp(value, &exponent);  // value in [2^(exponent-1), 2^exponent)
    int biased = exponent - 1 + kBias;
    if (biased < 1) biased = 1;  // subnormals share the exponent of the smallest normals
    // In units of the last place there: exact, since it only moves the binary point.
    const double units = std::ldexp(static_cast<double>(value), kMantissaBits + kBias - biased);
    const double rounded = std::nearbyint(units);
    const double code = rounded + static_cast<double>(biased - 1) * (kMantissaMask + 1.0);
    return code > kMagnitudeMask ? kMagnitudeMask + 1 : static_cast<uint32_t>(code);
  }
};

using E2M1 = Minifloat<2, 1, TopCodes::kFinite>;
using E4M3 = Minifloat<4, 3, TopCodes::kNan>;
using E5M2 = Minifloat<5, 2, TopCodes::kIeee>;
using UE4M3 = Minifloat<4, 3, TopCodes::kNan, false>;  // NVFP4's block scales: the sign bit is 0
using FP16 = Minifloat<5, 10, TopCodes::kIeee, true, uint16_t>;
using BF16 = Minifloat<8, 7, TopCodes::kIeee, true, uint16_t>;

// Plain integers -128..127, the value being the code itself.
struct Int8 {
  using Code = int8_t;
  static constexpr int kBits = 8;
  static constexpr bool IsNan(Code) { return false; }
  static float Decode(Code code) { return code; }
  // Nearest, ties to even, saturating; NaN, which INT8 has not, gives 0.
  static Code Encode(float value) {
    if (std::isnan(value)) return 0;
    return static_cast<Code>(std::nearbyint(std::fmin(std::fmax(value, -128.0f), 127.0f)));
  }
};

// Integers -8..7 as code = value + 8, the spelling of compressed-tensors' pack-quantized.
struct Int4 {
  using Code = uint8_t;
  static constexpr int kBits = 4;
  static constexpr bool IsNan(Code) { return false; }
  static float Decode(Code code) { return static_cast<float>(static_cast<int>(code & 15) - 8); }
  // Nearest, ties to even, saturating; NaN, which INT4 has not, gives 0.
  static Code Encode(float value) {
    if (std::isnan(value)) return 8;
    return static_cast<Code>(std::nearbyint(std::fmin(std::fmax(value, -8.0f), 7.0f)) + 8.0f);
  }
};

// A power of two, 2^(code - 127): no sign, no zero; 0xFF is NaN and 0x00 is 2^-127. How a scale
// is rounded to one (up, down, nearest) belongs to the scheme that uses it, not to the format.
struct E8M0 {
  using Code = uint8_t;
  static constexpr int kBits = 8;
  static constexpr bool IsNan(Code code) { return code == 0xFF; }
  static float Decode(Code code) {
    if (IsNan(code)) return std::numeric_limits<float>::quiet_NaN();
    return std::ldexp(1.0f, static_cast<int>(code) - 127);
  }
};

}  // namespace blockscale
