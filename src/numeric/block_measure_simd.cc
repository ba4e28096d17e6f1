// The fast side of block_quant.h: magnitudes and losses. Highway compiles this file once for each
// instruction set and picks one at run time.

#define HWY_WANT_AVX3_DL 1
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numeric/block_measure_simd.cc"
// clang-format off: this include must stand before highway.h
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "numeric/block_quant.h"

HWY_BEFORE_NAMESPACE();
namespace blockscale::block_measure {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
#define BLOCKSCALE_MEASURE_HAS_FAST 1
// Each needs the ones before it.
// clang-format off
#include "numeric/block_lanes.inc"
#include "numeric/block_measure.inc"
// clang-format on
#else
#define BLOCKSCALE_MEASURE_HAS_FAST 0
#endif

float Largest(const float* values, size_t count) {
#if BLOCKSCALE_MEASURE_HAS_FAST
  return LargestFast(values, count);
#else
  return LargestMagnitudeScalar(values, count);
#endif
}

RowsLoss Measure(const QuantRows& encoded, const float* values, const float* decoded) {
#if BLOCKSCALE_MEASURE_HAS_FAST
  const bool one_block = encoded.spec.grid_columns(encoded.columns) <= 1;
  if (one_block || encoded.spec.block_columns % kStep == 0)
    return MeasureFast(encoded, values, decoded);
#endif
  return MeasureRowsScalar(encoded, values, decoded);
}
#undef BLOCKSCALE_MEASURE_HAS_FAST

}  // namespace HWY_NAMESPACE
}  // namespace blockscale::block_measure
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blockscale {
namespace block_measure {
HWY_EXPORT(Largest);
HWY_EXPORT(Measure);

float DispatchLargest(const float* values, size_t count) {
  return HWY_DYNAMIC_DISPATCH(Largest)(values, count);
}
RowsLoss DispatchMeasure(const QuantRows& encoded, const float* values, const float* decoded) {
  return HWY_DYNAMIC_DISPATCH(Measure)(encoded, values, decoded);
}
}  // namespace block_measure

float LargestMagnitude(const float* values, size_t count) {
  return block_measure::DispatchLargest(values, count);
}

RowsLoss MeasureRows(const QuantRows& encoded, const float* values, const float* decoded) {
  return block_measure::DispatchMeasure(encoded, values, decoded);
}

}  // namespace blockscale
#endif
