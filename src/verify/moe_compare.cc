#include "verify/moe_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace blockscale {
namespace {

struct Sums {
  double xx = 0, xy = 0, yy = 0, dd = 0;
};

double Ratio(double x, double value, double low, double high) {
  if (x == value) return 0;
  const double reach = x > value ? high - value : value - low;
  return reach > 0 ? std::fabs(x - value) / reach : std::numeric_limits<double>::infinity();
}

void CompareRow(const MoeSpec& spec, const Expected& expected, size_t token, const float* row,
                Comparison* result, Sums* sums) {
  for (size_t k = 0; k < spec.hidden; ++k) {
    const size_t at = token * spec.hidden + k;
    const double x = row[k], value = expected.value[at];
    const double low = expected.low[at], high = expected.high[at];
    sums->xx += x * x;
    sums->xy += x * value;
    sums->yy += value * value;
    sums->dd += (x - value) * (x - value);
    if (x < low || x > high) ++result->outside;
    const double ratio = Ratio(x, value, low, high);
    if (ratio <= result->worst) continue;
    result->worst = ratio;
    result->token = token;
    result->column = k;
    result->got = x;
    result->value = value;
    result->low = low;
    result->high = high;
  }
}

}  // namespace

Comparison CompareOutput(const MoeSpec& spec, const Expected& expected, const std::byte* output) {
  Comparison result;
  Sums sums;
  std::vector<float> row(spec.hidden);
  size_t wrong_row = 0;
  for (size_t t = 0; t < expected.finite_row.size(); ++t) {
    LoadOutput(spec.output, output + t * OutputRowBytes(spec), spec.hidden, row.data());
    const bool finite =
        std::all_of(row.begin(), row.end(), [](float x) { return std::isfinite(x); });
    if (finite != expected.finite_row[t]) {
      if (result.wrong_rows++ == 0) wrong_row = t;
    } else if (!finite) {
      ++result.broken_rows;
    } else {
      CompareRow(spec, expected, t, row.data(), &result, &sums);
    }
  }
  if (sums.yy > 0) result.nrmse = std::sqrt(sums.dd / sums.yy);
  if (sums.xx > 0 && sums.yy > 0) result.cosine = sums.xy / std::sqrt(sums.xx * sums.yy);
  result.passed = result.outside == 0 && result.wrong_rows == 0;
  if (result.wrong_rows > 0)
    result.message = fmt::format("{} rows are finite on one side only, the first is token {}",
                                 result.wrong_rows, wrong_row);
  else if (result.outside > 0)
    result.message = fmt::format(
        "{} elements outside their bound, the worst at token {} column {}: {} where {} to {} is "
        "right",
        result.outside, result.token, result.column, result.got, result.low, result.high);
  return result;
}

}  // namespace blockscale
