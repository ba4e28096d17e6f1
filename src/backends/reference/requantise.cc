#include "backends/reference/requantise.h"

#include <limits>

#include "moe/row_quant.h"

namespace blockscale::reference {
namespace {

constexpr double kHalfUlp = 0x1p-24;

// Nearest value of the element format, in units of the scale.
double NearestCode(Format element, double x) {
  const float value = static_cast<float>(x);
  if (element == Format::kE4M3) return E4M3::Decode(E4M3::Encode(value));
  if (element == Format::kE2M1) return E2M1::Decode(E2M1::Encode(value));
  return std::fmin(std::fmax(std::nearbyint(value), -127.0f), 127.0f);
}

double LargestCode(Format element) {
  return element == Format::kE4M3 ? 448 : element == Format::kE2M1 ? 6 : 127;
}

// The scales that a group with this largest magnitude may get, from the smallest to the largest.
struct ScaleRange {
  double low = 0;
  double high = 0;
};

double PowerOfTwoScale(double amax, double largest) {
  if (amax == 0) return 0x1p-127;
  int exponent = 0;
  const double fraction = std::frexp(amax / largest, &exponent);  // [0.5, 1)
  return std::ldexp(1.0, std::max(fraction == 0.5 ? exponent - 1 : exponent, -127));
}

double BlockScale(double amax, const GlobalScale& global) {
  const float wanted = static_cast<float>(amax / 6 / global.value);
  return static_cast<double>(UE4M3::Decode(UE4M3::Encode(wanted))) * global.value;
}

ScaleRange ScalesOf(RowScheme scheme, const GlobalScale& global, double amax_low,
                    double amax_high) {
  switch (scheme) {
    case RowScheme::kBf16:
      return {1, 1};
    case RowScheme::kMxfp8:
      return {PowerOfTwoScale(amax_low, 448), PowerOfTwoScale(amax_high, 448)};
    case RowScheme::kNvfp4:
      // The quotient is rounded before it becomes a code: allow for either side of a boundary.
      return {BlockScale(amax_low * (1 - 4 * kHalfUlp), global),
              BlockScale(amax_high * (1 + 4 * kHalfUlp), global)};
    case RowScheme::kInt8Token:
    case RowScheme::kInt8Group:
      return {amax_low / 127 * (1 - 4 * kHalfUlp), amax_high / 127 * (1 + 4 * kHalfUlp)};
    case RowScheme::kFp8Token:
    case RowScheme::kFp8Token128:
      return {amax_low / 448 * (1 - 4 * kHalfUlp), amax_high / 448 * (1 + 4 * kHalfUlp)};
  }
  return {};
}

// All that x may become for any scale of the range.
void RoundTo(Format element, const ScaleRange& scales, double value_scale, bool exact_quotient,
             Interval* x) {
  if (scales.high == 0) {
    *x = Point(0);
    return;
  }
  const double slack = exact_quotient ? 0 : 4 * kHalfUlp;
  const double limit = LargestCode(element);
  const auto quotient = [&](double v, double scale) {
    return scale == 0 ? std::copysign(limit, v) : std::clamp(v / scale, -limit, limit);
  };
  double low = quotient(x->low, x->low >= 0 ? scales.high : scales.low);
  double high = quotient(x->high, x->high >= 0 ? scales.low : scales.high);
  low = NearestCode(element, low - slack * std::fabs(low));
  high = NearestCode(element, high + slack * std::fabs(high));
  const Interval codes{low, low, high};
  const Interval range = codes * Interval{scales.low, scales.low, scales.high};
  const double value =
      value_scale == 0 ? 0 : NearestCode(element, x->value / value_scale) * value_scale;
  *x = {std::min(range.low, value), value, std::max(range.high, value)};
}

void RequantiseGroup(RowScheme scheme, const GlobalScale& global, std::span<Interval> group) {
  double amax_low = 0, amax = 0, amax_high = 0;
  for (const Interval& x : group) {
    const bool across = x.low <= 0 && x.high >= 0;
    amax_low = std::max(amax_low, across ? 0.0 : std::min(std::fabs(x.low), std::fabs(x.high)));
    amax = std::max(amax, std::fabs(x.value));
    amax_high = std::max({amax_high, std::fabs(x.low), std::fabs(x.high)});
  }
  const ScaleRange scales = ScalesOf(scheme, global, amax_low, amax_high);
  const ScaleRange nominal = ScalesOf(scheme, global, amax, amax);
  double value_scale = scheme == RowScheme::kMxfp8 ? nominal.low : (nominal.low + nominal.high) / 2;
  if (scheme == RowScheme::kNvfp4) value_scale = BlockScale(amax, global);
  for (Interval& x : group)
    RoundTo(RowSpecOf(scheme).element, scales, value_scale, scheme == RowScheme::kMxfp8, &x);
}

// As the definition has it, of the values alone.
void RequantiseBroken(RowScheme scheme, const GlobalScale& global, std::span<Interval> group) {
  std::vector<float> values;
  for (const Interval& x : group) values.push_back(static_cast<float>(x.value));
  const ScaledRows rows = QuantiseRows(scheme, global, values.data(), 1, values.size());
  DecodeRow(rows, 0, values.data());
  for (size_t i = 0; i < group.size(); ++i) group[i] = Point(values[i]);
}

}  // namespace

void Requantise(RowScheme scheme, const GlobalScale& global, std::span<Interval> row) {
  if (scheme == RowScheme::kBf16) {
    for (Interval& x : row) x = ToBf16(x);
    return;
  }
  const size_t size = GroupOf(scheme, row.size());
  for (size_t i = 0; i < row.size(); i += size) {
    const auto group = row.subspan(i, size);
    const bool finite =
        std::all_of(group.begin(), group.end(), [](const Interval& x) { return x.finite(); });
    if (finite)
      RequantiseGroup(scheme, global, group);
    else
      RequantiseBroken(scheme, global, group);
  }
}

}  // namespace blockscale::reference
