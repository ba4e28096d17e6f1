#include "verify/element_grid.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace blockscale {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

uint64_t Bits(const std::byte* at, size_t bytes) {
  uint64_t bits = 0;
  for (size_t i = 0; i < bytes; ++i) bits |= std::to_integer<uint64_t>(at[i]) << (8 * i);
  return bits;
}

// sign, exponent, mantissa; `nan` is the first magnitude that is no number.
double FloatValue(uint64_t code, int exponent_bits, int mantissa_bits, uint64_t nan) {
  const uint64_t magnitude = code & ((uint64_t{1} << (exponent_bits + mantissa_bits)) - 1);
  if (magnitude >= nan) return kNan;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(magnitude >> mantissa_bits);
  const double fraction = std::ldexp(
      static_cast<double>(magnitude & ((uint64_t{1} << mantissa_bits) - 1)), -mantissa_bits);
  const double value =
      exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
  return (code >> (exponent_bits + mantissa_bits) & 1) != 0 ? -value : value;
}

uint64_t HalfByte(const std::byte* row, size_t index) {
  const uint64_t pair = std::to_integer<uint64_t>(row[index / 2]);
  return index % 2 == 0 ? pair % 16 : pair / 16;
}

}  // namespace

double ElementGrid::StepAt(double magnitude) const {
  if (whole) return 1;
  const int exponent = magnitude > 0 ? std::ilogb(magnitude) : lowest_exponent;
  return std::ldexp(1.0, std::max(exponent, lowest_exponent) - mantissa_bits);
}

ElementGrid GridOf(Format format) {
  switch (format) {
    case Format::kE2M1:
      return {6, -6, 1, 0};
    case Format::kE4M3:
    case Format::kUE4M3:
      return {448, -448, 3, -6};
    case Format::kE5M2:
      return {57344, -57344, 2, -14};
    case Format::kFP16:
      return {65504, -65504, 10, -14};
    case Format::kBF16:
      return {0x1.FEp127, -0x1.FEp127, 7, -126};
    case Format::kF32:
      return {0x1.FFFFFEp127, -0x1.FFFFFEp127, 23, -126};
    case Format::kInt8:
      return {127, -128, 0, 0, true};
    case Format::kInt4:
      return {7, -8, 0, 0, true};
    case Format::kE8M0:
      return {0x1p127, 0, 0, -127};
  }
  return {};
}

double ValueAt(Format format, const std::byte* row, size_t index) {
  switch (format) {
    case Format::kE2M1:
      return FloatValue(HalfByte(row, index), 2, 1, 8);
    case Format::kE4M3:
      return FloatValue(Bits(row + index, 1), 4, 3, 0x7F);
    case Format::kUE4M3: {
      const uint64_t code = Bits(row + index, 1);
      return code >= 0x7F ? kNan : FloatValue(code, 4, 3, 0x7F);
    }
    case Format::kE5M2:
      return FloatValue(Bits(row + index, 1), 5, 2, 0x7C);
    case Format::kFP16:
      return FloatValue(Bits(row + 2 * index, 2), 5, 10, 0x7C00);
    case Format::kBF16:
      return FloatValue(Bits(row + 2 * index, 2), 8, 7, 0x7F80);
    case Format::kF32:
      return FloatValue(Bits(row + 4 * index, 4), 8, 23, 0x7F800000);
    case Format::kInt8: {
      const int code = std::to_integer<int>(row[index]);
      return code < 128 ? code : code - 256;
    }
    case Format::kInt4:
      return static_cast<double>(HalfByte(row, index)) - 8;
    case Format::kE8M0: {
      const int code = std::to_integer<int>(row[index]);
      return code == 255 ? kNan : std::ldexp(1.0, code - 127);
    }
  }
  return kNan;
}

}  // namespace blockscale
