#include "numeric/fp8_to_int8.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "numeric/minifloat.h"

namespace blockscale {
namespace fp8_to_int8 {
namespace {

std::array<float, 128> MakeMagnitudes() {
  std::array<float, 128> table;
  for (size_t code = 0; code < table.size(); ++code)
    table[code] = E4M3::Decode(static_cast<uint8_t>(code));
  table[kNanMagnitude] = 0;  // never read as a value
  return table;
}

// Pass 1: the largest |W| of the row and its column, or the first column that cannot be converted.
RowFault FindLargest(const Fp8Rows& in, size_t row, float* largest, size_t* largest_column) {
  const uint8_t* codes = in.codes + row * in.columns;
  const float* scales = ScaleRow(in, row);
  *largest = 0;
  for (size_t column = 0; column < in.columns; ++column) {
    const uint8_t magnitude = codes[column] & kMagnitude;
    const float scale = scales[column / in.block_columns];
    if (magnitude == kNanMagnitude) return {RowFault::Kind::kNanCode, row, column};
    if (magnitude != 0 && scale == 0) return {RowFault::Kind::kZeroScale, row, column};
    const float value = kMagnitudes[magnitude] * scale;
    if (!std::isfinite(value)) return {RowFault::Kind::kOverflow, row, column};
    if (value > *largest) {
      *largest = value;
      *largest_column = column;
    }
  }
  return {};
}

// Adds rows up the way the SIMD side does: fixed lanes, folded after each segment.
class QualityLanes {
 public:
  void Add(size_t column, float value, float error) {
    if (column % kSegment == 0 && column != 0) Fold();
    const size_t lane = column % kLanes;
    squares_[lane] = std::fma(value, value, squares_[lane]);
    errors_[lane] = std::fma(error, error, errors_[lane]);
    largest_ = std::max(largest_, std::fabs(error));
  }
  RowQuality Finish() {
    Fold();
    return {static_cast<float>(sum_squares_), static_cast<float>(sum_errors_), largest_, false};
  }

 private:
  void Fold() {
    sum_squares_ += FoldLanes(squares_);
    sum_errors_ += FoldLanes(errors_);
    squares_.fill(0);
    errors_.fill(0);
  }
  std::array<float, kLanes> squares_{}, errors_{};
  double sum_squares_ = 0, sum_errors_ = 0;
  float largest_ = 0;
};

}  // namespace

const std::array<float, 128> kMagnitudes = MakeMagnitudes();

float FoldLanes(std::array<float, kLanes> lanes) {
  for (size_t width = kLanes / 2; width > 0; width /= 2)
    for (size_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  return lanes[0];
}

void StoreZeroRow(const Fp8Rows& in, size_t row, Int8Range range, const Int8Rows& out,
                  RowQuality* quality) {
  std::fill_n(out.codes + row * in.columns, in.columns, int8_t{0});
  out.row_scales[row] = RowScale(0, range);
  if (quality != nullptr) quality[row] = {.zero = true};
}

RowFault ConvertRow(const Fp8Rows& in, size_t row, Int8Range range, const Int8Rows& out,
                    RowQuality* quality) {
  float largest = 0;
  size_t largest_column = 0;
  const RowFault fault = FindLargest(in, row, &largest, &largest_column);
  if (fault.kind != RowFault::Kind::kNone) return fault;
  const float scale = RowScale(largest, range);
  if (largest == 0) {
    StoreZeroRow(in, row, range, out, quality);
    return {};
  }
  if (scale < std::numeric_limits<float>::min())
    return {RowFault::Kind::kScaleUnderflow, row, largest_column};
  const float low = range == Int8Range::k127 ? -127.0f : -128.0f;
  const uint8_t* codes = in.codes + row * in.columns;
  const float* scales = ScaleRow(in, row);
  QualityLanes lanes;
  for (size_t column = 0; column < in.columns; ++column) {
    const float magnitude =
        kMagnitudes[codes[column] & kMagnitude] * scales[column / in.block_columns];
    const float value = (codes[column] > kMagnitude ? -magnitude : magnitude) / scale;
    // The default rounding mode is to nearest, ties to even.
    const float rounded = std::clamp(std::nearbyint(value), low, 127.0f);
    out.codes[row * in.columns + column] = static_cast<int8_t>(rounded);
    if (quality != nullptr) lanes.Add(column, value, value - rounded);
  }
  out.row_scales[row] = scale;
  if (quality != nullptr) quality[row] = lanes.Finish();
  return {};
}

}  // namespace fp8_to_int8

RowFault ConvertFp8RowsToInt8Scalar(const Fp8Rows& in, Int8Range range, const Int8Rows& out,
                                    RowQuality* quality) {
  for (size_t row = 0; row < in.rows; ++row) {
    const RowFault fault = fp8_to_int8::ConvertRow(in, row, range, out, quality);
    if (fault.kind != RowFault::Kind::kNone) return fault;
  }
  return {};
}

}  // namespace blockscale
