// The fast side of block_quant.h: FP32 to codes and scales. Highway compiles this file once for
// each instruction set and picks one at run time; shapes and rules that it has no way for go to the
// scalar side.
//
// A row of blocks is gone through twice: once for the blocks' largest magnitudes, which then become
// scales for many blocks at a time (block_scales.inc, block_search.inc), and once for the codes
// (block_codes.inc).

#define HWY_WANT_AVX3_DL 1
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numeric/block_encode_simd.cc"
// clang-format off: this include must stand before highway.h
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "numeric/block_quant.h"
#include "numeric/scale_search.h"

#ifndef BLOCKSCALE_BLOCK_ENCODE_ONCE
#define BLOCKSCALE_BLOCK_ENCODE_ONCE
namespace blockscale::block_encode {

inline constexpr size_t kBlockUnit = 16;  // columns; blocks begin at whole vectors, whole bytes
inline constexpr size_t kNvfpWidth = 16;  // of the blocks whose scales are searched

// Where the blocks of a row stand.
struct Blocks {
  size_t columns;
  size_t width;
  size_t count;
};

inline Blocks BlocksOf(const QuantSpec& spec, size_t columns) {
  const size_t count = spec.grid_columns(columns);
  return {columns, count <= 1 ? columns : static_cast<size_t>(spec.block_columns), count};
}

inline bool IsSearch(ScaleRule rule) {
  return rule == ScaleRule::kMse || rule == ScaleRule::kFourOverSix || rule == ScaleRule::kSweep;
}

inline bool IsFast(const EncodeOptions& options, size_t columns) {
  const QuantSpec& spec = options.spec;
  if (!RuleFits(options.rule, spec.scheme) || options.rule == ScaleRule::kExactCast) return false;
  if (!HasScales(spec.scheme)) return true;
  if (spec.grid_columns(columns) > 1 && spec.block_columns % kBlockUnit != 0) return false;
  const bool nvfp = spec.scheme == Scheme::kNvfp4;
  if (nvfp != (spec.scale == Format::kUE4M3)) return false;
  if (nvfp && IsSearch(options.rule) && spec.block_columns != kNvfpWidth) return false;
  if (IsSearch(options.rule) && spec.block_rows != 1) return false;
  switch (spec.scale) {
    case Format::kF32:
    case Format::kBF16:
    case Format::kFP16:
    case Format::kUE4M3:
      return true;
    case Format::kE8M0:  // powers of two only
      return options.rule != ScaleRule::kAbsmax && spec.scheme != Scheme::kInt8Channel &&
             spec.scheme != Scheme::kInt4Group && spec.scheme != Scheme::kFp8Tensor;
    default:
      return false;
  }
}

}  // namespace blockscale::block_encode
#endif  // BLOCKSCALE_BLOCK_ENCODE_ONCE

HWY_BEFORE_NAMESPACE();
namespace blockscale::block_encode {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
#define BLOCKSCALE_ENCODE_HAS_FAST 1
// Each needs the ones before it.
// clang-format off
#include "numeric/block_lanes.inc"
#include "numeric/block_codes.inc"
#include "numeric/block_scales.inc"
#include "numeric/block_search.inc"
#include "numeric/block_sweep.inc"
// clang-format on

// Scales of one row of blocks, whose largest magnitudes stand in `effective`.
void ChooseRow(const EncodeOptions& options, const float* values, const Blocks& blocks,
               float* effective, std::byte* scales) {
  if (!IsSearch(options.rule)) {
    ScalesFromMaxima(options, blocks.count, effective, scales);
  } else if (options.rule == ScaleRule::kSweep) {
    SweepRow(options, values, blocks, effective, scales);
  } else {
    SearchRow(options, values, blocks, effective, scales);
  }
}

void Encode(const EncodeOptions& options, const float* values, size_t rows, size_t columns,
            const EncodedRows& out) {
  const QuantSpec& spec = options.spec;
  if (spec.element == Format::kF32) {
    std::memcpy(out.codes, values, rows * columns * sizeof(float));
    return;
  }
  const Blocks blocks = BlocksOf(spec, columns);
  const size_t row_bytes = spec.row_bytes(columns);
  const size_t height = spec.block_rows == 0 ? rows : static_cast<size_t>(spec.block_rows);
  float* effective = out.effective;
  std::byte* scales = out.scales;
  for (size_t first = 0; first < rows; first += height) {
    const size_t last = std::min(rows, first + height);
    if (spec.scheme == Scheme::kFp8Tensor) {
      *effective = options.global.value;
      if (scales != nullptr) std::memset(scales, 0, spec.scale_bytes());
    } else if (spec.has_scales()) {
      std::fill_n(effective, blocks.count, 0.0f);
      const auto raise = height == 1 ? RaiseMaxima<true> : RaiseMaxima<false>;
      for (size_t row = first; row < last; ++row) raise(values + row * columns, blocks, effective);
      ChooseRow(options, values + first * columns, blocks, effective, scales);
    }
    for (size_t row = first; row < last; ++row)
      EncodeRow(options, values + row * columns, blocks, effective,
                Bytes(out.codes) + row * row_bytes, row_bytes);
    effective += blocks.count;
    if (scales != nullptr) scales += blocks.count * spec.scale_bytes();
  }
}
#else
#define BLOCKSCALE_ENCODE_HAS_FAST 0
#endif

void Rows(const EncodeOptions& options, const float* values, size_t rows, size_t columns,
          const EncodedRows& out) {
#if BLOCKSCALE_ENCODE_HAS_FAST
  if (rows != 0 && columns != 0 && IsFast(options, columns))
    return Encode(options, values, rows, columns, out);
#endif
  EncodeRowsScalar(options, values, rows, columns, out);
}
#undef BLOCKSCALE_ENCODE_HAS_FAST

}  // namespace HWY_NAMESPACE
}  // namespace blockscale::block_encode
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blockscale {
namespace block_encode {
HWY_EXPORT(Rows);

void Dispatch(const EncodeOptions& options, const float* values, size_t rows, size_t columns,
              const EncodedRows& out) {
  HWY_DYNAMIC_DISPATCH(Rows)(options, values, rows, columns, out);
}
}  // namespace block_encode

void EncodeRows(const EncodeOptions& options, const float* values, size_t rows, size_t columns,
                const EncodedRows& out) {
  block_encode::Dispatch(options, values, rows, columns, out);
}

}  // namespace blockscale
#endif
