// A value and the range that a right implementation's value may lie in.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "numeric/minifloat.h"

namespace blockscale::reference {

struct Interval {
  double low = 0;
  double value = 0;
  double high = 0;

  bool finite() const { return std::isfinite(low) && std::isfinite(value) && std::isfinite(high); }
};

inline Interval Point(double x) { return {x, x, x}; }

inline Interval Widen(const Interval& x, double by) { return {x.low - by, x.value, x.high + by}; }

inline Interval operator+(const Interval& a, const Interval& b) {
  return {a.low + b.low, a.value + b.value, a.high + b.high};
}

inline Interval operator*(const Interval& a, const Interval& b) {
  const double corners[] = {a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high};
  return {*std::min_element(corners, corners + 4), a.value * b.value,
          *std::max_element(corners, corners + 4)};
}

// Rounding is monotone, so the ends of the range bound it.
inline double ToBf16(double x) {
  return BF16::Decode(BF16::Encode(static_cast<float>(x), Overflow::kIeee));
}
inline Interval ToBf16(const Interval& x) {
  return {ToBf16(x.low), ToBf16(x.value), ToBf16(x.high)};
}

}  // namespace blockscale::reference
