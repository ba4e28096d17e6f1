// The fast side of blockscale/fp8_to_int8.h. Highway compiles this file once for each instruction
// set and picks one at run time; rows that it cannot do exactly go to the scalar side.
//
// The whole trick is in one fact: the 126 nonzero magnitudes of E4M3 are 8 mantissas times powers
// of two. So a block needs 8 products W8[m] = fl32((1 + m/8) * scale), a row and block 8 quotients
// Q8[m] = fl32(W8[m] / s), and every other quotient is one of those times a power of two, exactly
// (as long as nothing leaves FP32's normal range, which the range of fast scales ensures). From
// them comes one table of 128 magnitudes per row and block, and converting is a look-up of bytes.

// Byte permutes over 128 entries (AVX-512 VBMI) come with this target, which Highway leaves out
// unless asked for it.
#define HWY_WANT_AVX3_DL 1
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numeric/fp8_to_int8_simd.cc"
// clang-format off: this include must stand before highway.h
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/aligned_allocator.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "numeric/fp8_to_int8.h"

#ifndef BLOCKSCALE_FP8_TO_INT8_ONCE
#define BLOCKSCALE_FP8_TO_INT8_ONCE
namespace blockscale::fp8_to_int8 {

inline constexpr size_t kMantissas = 8;
inline constexpr size_t kCodes = 128;        // without their sign
inline constexpr size_t kUsualWidth = 128;   // of a block
inline constexpr size_t kTopBytes = 16;      // of a block, reduced to one byte later
inline constexpr size_t kBlocksAtOnce = 16;  // buffers have room for whole groups of blocks

// Results from this size on are streamed; far above any core's own caches.
inline constexpr size_t kStreamBytes = size_t{16} << 20;
inline constexpr size_t kStreamAlign = 64;
// How far ahead of its use memory is asked for.
inline constexpr size_t kPrefetchBytes = 1024;

// Far inside FP32's range, so that no product, quotient or power of two below ever rounds twice.
inline constexpr float kSmallestFastScale = 0x1p-48f;
inline constexpr float kLargestFastScale = 0x1p48f;

template <typename T>
using Buffer = hwy::AlignedFreeUniquePtr<T[]>;

template <typename T>
Buffer<T> Zeros(size_t count) {
  Buffer<T> buffer = hwy::AllocateAligned<T>(count);
  std::fill_n(buffer.get(), count, T{0});
  return buffer;
}

// What ConvertBlock needs of a RowPlan. Not owned.
struct PlanView {
  const float* quotients;
  const float* windows;
  const uint8_t* doubled;
};

// What a row is converted with. Buffers are aligned to vectors, have room for whole groups of
// blocks, and begin as zeros.
struct RowPlan {
  enum class Way { kFast, kZero, kScalar };

  explicit RowPlan(size_t blocks)
      : quotients(Zeros<float>(blocks * kMantissas)),
        windows(Zeros<float>(blocks * kMantissas)),
        doubled(Zeros<uint8_t>(blocks)) {}

  PlanView View() const { return {quotients.get(), windows.get(), doubled.get()}; }

  Way way = Way::kScalar;
  float scale = 0;          // s
  Buffer<float> quotients;  // [blocks][8]: Q8
  Buffer<float> windows;    // [blocks][8]: W / s of the first codes of a part of the table
  Buffer<uint8_t> doubled;  // [blocks]: the largest code, doubled, which drops its sign
};

// What a call needs beyond its arguments; reused from row to row.
struct Work {
  explicit Work(size_t blocks)
      : values(Zeros<float>(blocks * kCodes)),
        tops(Zeros<uint8_t>(blocks * kTopBytes)),
        plans{RowPlan(blocks), RowPlan(blocks)} {}

  // Of the row that is converted now and of the next one.
  RowPlan& PlanOf(size_t row) { return plans[row % 2]; }

  Buffer<float> values;  // [blocks][128]: W of each code, of one row of blocks
  Buffer<uint8_t> tops;  // [blocks][16]: their largest is the block's largest code, doubled, in the
                         // row that was scanned last
  RowPlan plans[2];
  const float* values_of = nullptr;  // the row of scales that `values` belongs to
};

inline size_t RoomForBlocks(const Fp8Rows& in) {
  return (in.grid_columns + kBlocksAtOnce - 1) / kBlocksAtOnce * kBlocksAtOnce;
}

// W8 of a block: the codes of 1, 1.125, ... 1.875.
inline const float* Mantissas(const Work& work, size_t block) {
  return &work.values[block * kCodes + 7 * kMantissas];
}

// The blocks of a row must begin at whole groups of lanes.
inline bool ShapeIsFast(const Fp8Rows& in) {
  return in.grid_columns == 1 || (in.grid_columns > 1 && in.block_columns % kLanes == 0);
}

inline size_t BlockWidth(const Fp8Rows& in) {
  return in.grid_columns == 1 ? in.columns : in.block_columns;
}

// Whether the result goes past the caches, as memcpy does with large copies: it would push out what
// is there, and memory would be read before it is overwritten. Streaming stores need alignment.
inline bool ShouldStream(const Fp8Rows& in, const Int8Rows& out) {
  return in.rows * in.columns >= kStreamBytes && in.columns % kStreamAlign == 0 &&
         BlockWidth(in) % kStreamAlign == 0 &&
         reinterpret_cast<uintptr_t>(out.codes) % kStreamAlign == 0;
}

// A block that fast rows may not use (its scale is out of range) only holds zeros there.
inline void MultiplyCodes(const Fp8Rows& in, const float* scales, Work& work) {
  for (size_t block = 0; block < in.grid_columns; ++block) {
    const bool in_range = scales[block] >= kSmallestFastScale && scales[block] <= kLargestFastScale;
    const float scale = in_range ? scales[block] : 0.0f;
    for (size_t code = 0; code < kCodes; ++code)
      work.values[block * kCodes + code] = kMagnitudes[code] * scale;
  }
  work.values_of = scales;
}

// Entry 0..7 of a table are +-0 and the subnormals 1..7 * 2^-9: mantissa and power of two of each.
alignas(32) inline constexpr int32_t kSubnormalMantissa[8] = {0, 0, 0, 4, 0, 2, 4, 6};
alignas(32) inline constexpr float kSubnormalPower[8] = {0,       0x1p-9f, 0x1p-8f, 0x1p-8f,
                                                         0x1p-7f, 0x1p-7f, 0x1p-7f, 0x1p-7f};

constexpr float PowerOf(int exponent) {  // 2^(exponent - 7)
  float power = 0x1p-7f;
  for (int i = 0; i < exponent; ++i) power *= 2;
  return power;
}

}  // namespace blockscale::fp8_to_int8
#endif  // BLOCKSCALE_FP8_TO_INT8_ONCE

HWY_BEFORE_NAMESPACE();
namespace blockscale::fp8_to_int8 {
namespace HWY_NAMESPACE {

// A set of primitives gives:
//   ScanBlock(codes, count, top): the 16 bytes of Work::tops
//   LargestOfRow(in, scales, work, plan, &largest): from `tops` the largest |W| and the plan's
//     `doubled`; false when the scalar side must look at the row
//   Divide(in, work, sums, plan): from `values` what ConvertBlock needs, and `quotients` if `sums`
//   ConvertBlock<range, stream>(plan, block, codes, count, out): the table of a row and block, and
//     its use
//   Lanes<range>: the sums of a RowQuality, bit for bit those of fp8_to_int8.cc
#if HWY_TARGET == HWY_AVX3_DL
#define BLOCKSCALE_FP8_HAS_FAST 1
#include "numeric/fp8_to_int8_avx512.inc"
#elif HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
#define BLOCKSCALE_FP8_HAS_FAST 1
#include "numeric/fp8_to_int8_avx2.inc"
#else
#define BLOCKSCALE_FP8_HAS_FAST 0
#endif

#if BLOCKSCALE_FP8_HAS_FAST

// What the codes of a row lost. It rounds again rather than read the result back, which may be on
// its way to memory.
template <Int8Range kRange>
HWY_INLINE RowQuality Measure(const Fp8Rows& in, const uint8_t* codes, const RowPlan& plan) {
  Lanes<kRange> lanes;
  const size_t width = BlockWidth(in);
  for (size_t column = 0; column < in.columns;) {
    if (column % kSegment == 0 && column != 0) lanes.Fold();
    const size_t block = column / width;
    const auto quotients = Lanes<kRange>::LoadQuotients(&plan.quotients[block * kMantissas]);
    const size_t segment_end = (column / kSegment + 1) * kSegment;
    const size_t end = std::min({(block + 1) * width, segment_end, in.columns});
    for (; column + kLanes <= end; column += kLanes) lanes.Add32(codes + column, quotients);
    if (column < end) {  // only at the end of the row: zeros add nothing
      alignas(32) uint8_t rest[kLanes] = {};
      std::memcpy(rest, codes + column, end - column);
      lanes.Add32(rest, quotients);
      column = end;
    }
  }
  return lanes.Finish();
}

// The blocks [first, last) of ConvertAndScan, all `width` wide. Everything it needs comes by value:
// bytes are written, which might be anything that a reference leads to.
template <Int8Range kRange, bool kStream>
HWY_INLINE void ConvertAndScanBlocks(PlanView plan, size_t first, size_t last, size_t width,
                                     size_t count, const uint8_t* codes, int8_t* out,
                                     const uint8_t* scanned, uint8_t* tops) {
  for (size_t block = first; block < last; ++block) {
    const size_t begin = block * width;
    if (scanned != nullptr) {
      if constexpr (kStream) {
        for (size_t line = 0; line < count; line += kStreamAlign)
          __builtin_prefetch(scanned + begin + line + kPrefetchBytes);
      }
      ScanBlock(scanned + begin, count, tops + block * kTopBytes);
    }
    ConvertBlock<kRange, kStream>(plan, block, codes + begin, count, out + begin);
  }
}

// Converts a row and, so that memory is read while arithmetic goes on, scans a later one unless
// `scanned` is null.
template <Int8Range kRange, bool kStream>
HWY_INLINE void ConvertAndScan(const Fp8Rows& in, const RowPlan& plan, const uint8_t* codes,
                               int8_t* out, const uint8_t* scanned, uint8_t* tops) {
  const PlanView view = plan.View();
  const size_t width = BlockWidth(in);
  const size_t whole = in.columns / width, rest = in.columns % width;
  if (width == kUsualWidth) {  // as a constant, for the compiler
    ConvertAndScanBlocks<kRange, kStream>(view, 0, whole, kUsualWidth, kUsualWidth, codes, out,
                                          scanned, tops);
  } else {
    ConvertAndScanBlocks<kRange, kStream>(view, 0, whole, width, width, codes, out, scanned, tops);
  }
  if (rest != 0) {
    ConvertAndScanBlocks<kRange, kStream>(view, whole, whole + 1, width, rest, codes, out, scanned,
                                          tops);
  }
}

HWY_INLINE void ScanRow(const Fp8Rows& in, const uint8_t* codes, uint8_t* tops) {
  const size_t width = BlockWidth(in);
  for (size_t block = 0; block < in.grid_columns; ++block) {
    const size_t begin = block * width;
    ScanBlock(codes + begin, std::min(width, in.columns - begin), tops + block * kTopBytes);
  }
}

// Plans the row that was scanned last.
template <Int8Range kRange>
HWY_INLINE void PlanRow(const Fp8Rows& in, size_t row, bool sums, Work& work) {
  RowPlan& plan = work.PlanOf(row);
  const float* scales = ScaleRow(in, row);
  float largest = 0;
  plan.way = RowPlan::Way::kScalar;
  if (!LargestOfRow(in, scales, work, plan, &largest)) return;
  plan.way = largest > 0 ? RowPlan::Way::kFast : RowPlan::Way::kZero;
  if (largest == 0) return;
  if (work.values_of != scales) MultiplyCodes(in, scales, work);
  plan.scale = RowScale(largest, kRange);
  Divide(in, work, sums, plan);
}

// Converts a planned row, and scans the row after the next if there is one.
template <Int8Range kRange, bool kStream>
HWY_INLINE RowFault ConvertPlanned(const Fp8Rows& in, size_t row, const Int8Rows& out,
                                   RowQuality* quality, Work& work) {
  const RowPlan& plan = work.PlanOf(row);
  const uint8_t* codes = in.codes + row * in.columns;
  const uint8_t* scanned = row + 2 < in.rows ? codes + 2 * in.columns : nullptr;
  if (plan.way != RowPlan::Way::kFast) {
    if (scanned != nullptr) ScanRow(in, scanned, work.tops.get());
    if (plan.way == RowPlan::Way::kScalar) return ConvertRow(in, row, kRange, out, quality);
    StoreZeroRow(in, row, kRange, out, quality);
    return {};
  }
  ConvertAndScan<kRange, kStream>(in, plan, codes, out.codes + row * in.columns, scanned,
                                  work.tops.get());
  out.row_scales[row] = plan.scale;
  if (quality != nullptr) quality[row] = Measure<kRange>(in, codes, plan);
  return {};
}

// Three rows are under way: one is converted, the next is planned (before that, so that its
// divisions are not waited for), the one after is scanned.
template <Int8Range kRange, bool kStream>
RowFault ConvertFast(const Fp8Rows& in, const Int8Rows& out, RowQuality* quality) {
  Work work(RoomForBlocks(in));
  const bool sums = quality != nullptr;
  for (size_t row = 0; row < std::min<size_t>(in.rows, 2); ++row) {
    ScanRow(in, in.codes + row * in.columns, work.tops.get());
    if (row == 0) PlanRow<kRange>(in, 0, sums, work);
  }
  RowFault fault;
  for (size_t row = 0; row < in.rows && fault.kind == RowFault::Kind::kNone; ++row) {
    if (row + 1 < in.rows) PlanRow<kRange>(in, row + 1, sums, work);
    fault = ConvertPlanned<kRange, kStream>(in, row, out, quality, work);
  }
  if constexpr (kStream) _mm_sfence();  // other threads see all of it once this returns
  return fault;
}

template <Int8Range kRange>
RowFault ConvertAnySize(const Fp8Rows& in, const Int8Rows& out, RowQuality* quality) {
  return ShouldStream(in, out) ? ConvertFast<kRange, true>(in, out, quality)
                               : ConvertFast<kRange, false>(in, out, quality);
}
#endif

RowFault ConvertRows(const Fp8Rows& in, Int8Range range, const Int8Rows& out, RowQuality* quality) {
#if BLOCKSCALE_FP8_HAS_FAST
  if (ShapeIsFast(in)) {
    return range == Int8Range::k127 ? ConvertAnySize<Int8Range::k127>(in, out, quality)
                                    : ConvertAnySize<Int8Range::k128>(in, out, quality);
  }
#endif
  return ConvertFp8RowsToInt8Scalar(in, range, out, quality);
}

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }
#undef BLOCKSCALE_FP8_HAS_FAST

}  // namespace HWY_NAMESPACE
}  // namespace blockscale::fp8_to_int8
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blockscale {
namespace fp8_to_int8 {
HWY_EXPORT(ConvertRows);
HWY_EXPORT(TargetName);

RowFault Dispatch(const Fp8Rows& in, Int8Range range, const Int8Rows& out, RowQuality* quality) {
  return HWY_DYNAMIC_DISPATCH(ConvertRows)(in, range, out, quality);
}
const char* DispatchedTarget() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }
}  // namespace fp8_to_int8

RowFault ConvertFp8RowsToInt8(const Fp8Rows& in, Int8Range range, const Int8Rows& out,
                              RowQuality* quality) {
  return fp8_to_int8::Dispatch(in, range, out, quality);
}

const char* Fp8ToInt8Target() { return fp8_to_int8::DispatchedTarget(); }

}  // namespace blockscale
#endif
