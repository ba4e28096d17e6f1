// The fast side of block_quant.h: codes and scales to FP32. Highway compiles this file once for
// each instruction set and picks one at run time; shapes that it has no way for go to the scalar
// side.

#define HWY_WANT_AVX3_DL 1
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numeric/block_decode_simd.cc"
// clang-format off: this include must stand before highway.h
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "numeric/block_quant.h"

#ifndef BLOCKSCALE_BLOCK_DECODE_ONCE
#define BLOCKSCALE_BLOCK_DECODE_ONCE
namespace blockscale::block_decode {

// Results from this size on go past the caches: memory need not be read before it is overwritten.
inline constexpr size_t kStreamBytes = size_t{16} << 20;
inline constexpr size_t kStreamAlign = 64;
inline constexpr size_t kBlockUnit = 16;  // columns; blocks begin at whole vectors, whole bytes

inline bool ShouldStream(const QuantRows& in, const float* out) {
  return in.rows * in.columns * sizeof(float) >= kStreamBytes &&
         in.columns * sizeof(float) % kStreamAlign == 0 &&
         reinterpret_cast<uintptr_t>(out) % kStreamAlign == 0;
}

inline bool ShapeIsFast(const QuantSpec& spec, size_t columns) {
  return spec.grid_columns(columns) <= 1 || spec.block_columns % kBlockUnit == 0;
}

}  // namespace blockscale::block_decode
#endif  // BLOCKSCALE_BLOCK_DECODE_ONCE

HWY_BEFORE_NAMESPACE();
namespace blockscale::block_decode {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
#define BLOCKSCALE_DECODE_HAS_FAST 1
// Each needs the ones before it.
// clang-format off
#include "numeric/block_lanes.inc"
#include "numeric/block_decode.inc"
// clang-format on
#else
#define BLOCKSCALE_DECODE_HAS_FAST 0
#endif

void Scales(Format format, const GlobalScale& global, const std::byte* stored, size_t count,
            float* out) {
#if BLOCKSCALE_DECODE_HAS_FAST
  if (ScalesFast(format, global, stored, count, out)) return;
#endif
  DecodeScalesScalar(format, global, stored, count, out);
}

void Rows(const QuantRows& in, float* out) {
#if BLOCKSCALE_DECODE_HAS_FAST
  if (ShapeIsFast(in.spec, in.columns) && RowsFast(in, out)) return;
#endif
  DecodeRowsScalar(in, out);
}

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }
#undef BLOCKSCALE_DECODE_HAS_FAST

}  // namespace HWY_NAMESPACE
}  // namespace blockscale::block_decode
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blockscale {
namespace block_decode {
HWY_EXPORT(Scales);
HWY_EXPORT(Rows);
HWY_EXPORT(TargetName);

void DispatchScales(Format format, const GlobalScale& global, const std::byte* stored, size_t count,
                    float* out) {
  HWY_DYNAMIC_DISPATCH(Scales)(format, global, stored, count, out);
}
void DispatchRows(const QuantRows& in, float* out) { HWY_DYNAMIC_DISPATCH(Rows)(in, out); }
const char* DispatchedTarget() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }
}  // namespace block_decode

void DecodeScales(Format format, const GlobalScale& global, const std::byte* stored, size_t count,
                  float* out) {
  block_decode::DispatchScales(format, global, stored, count, out);
}

void DecodeRows(const QuantRows& in, float* out) { block_decode::DispatchRows(in, out); }

const char* BlockQuantTarget() { return block_decode::DispatchedTarget(); }

}  // namespace blockscale
#endif
