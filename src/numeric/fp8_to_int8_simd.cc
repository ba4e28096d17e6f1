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
#include <atomic>
#include <cstring>
#include <limits>

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
inline constexpr size_t kPrefetchBytes = 2048;

// Far inside FP32's range, so that no product, quotient or power of two below ever rounds twice.
inline constexpr float kSmallestFastScale = 0x1p-48f;
inline constexpr float kLargestFastScale = 0x1p48f;
inline constexpr float kNoFastScale = std::numeric_limits<float>::infinity();

template <typename T>
using Buffer = hwy::AlignedFreeUniquePtr<T[]>;

template <typename T>
Buffer<T> Zeros(size_t count) {
  Buffer<T> buffer = hwy::AllocateAligned<T>(count);
  std::fill_n(buffer.get(), count, T{0});
  return buffer;
}

// How a row is converted. Buffers have room for whole groups of blocks and begin as zeros.
struct RowPlan {
  enum class Way { kFast, kZero, kScalar };

  explicit RowPlan(size_t blocks) : doubled(Zeros<uint8_t>(blocks)) {}

  Way way = Way::kScalar;
  float scale = 0;          // s
  Buffer<uint8_t> doubled;  // [blocks]: the largest code, doubled, which drops its sign
};

// What a call needs beyond its arguments; reused from row to row.
struct Work {
  explicit Work(size_t blocks)
      : checked(Zeros<float>(blocks)),
        values(Zeros<float>(blocks * kCodes)),
        tops(Zeros<uint8_t>(blocks * kTopBytes)),
        plans{RowPlan(blocks), RowPlan(blocks)} {}

  // Of the row that is converted now and of the next one.
  RowPlan& PlanOf(size_t row) { return plans[row % 2]; }

  Buffer<float> checked;  // [blocks]: 2^8 times the scales of one row of blocks, or kNoFastScale
  Buffer<float> values;   // [blocks][128]: W of each code, of one row of blocks
  Buffer<uint8_t> tops;   // [blocks][16]: their largest is the block's largest code, doubled, in
                          // the row that was scanned last
  RowPlan plans[2];
  const float* checked_of = nullptr;  // the row of scales that `checked` belongs to
  const float* values_of = nullptr;
};

inline size_t RoomForBlocks(const Fp8Rows& in) {
  return (in.grid_columns + kBlocksAtOnce - 1) / kBlocksAtOnce * kBlocksAtOnce;
}

// W8 among the values of a block: the codes of 1, 1.125, ... 1.875.
inline const float* Mantissas(const float* values) { return values + 7 * kMantissas; }

// The blocks of a row must begin at whole groups of lanes.
inline bool ShapeIsFast(const Fp8Rows& in) {
  return in.grid_columns == 1 || (in.grid_columns > 1 && in.block_columns % kLanes == 0);
}

inline size_t BlockWidth(const Fp8Rows& in) {
  return in.grid_columns == 1 ? in.columns : in.block_columns;
}

// Asks for memory ahead of `codes`. The fence keeps the compiler from gathering the reads of
// several lines before their writes: memory is quicker when they alternate.
HWY_INLINE void PrefetchInTurn(const uint8_t* codes) {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  __builtin_prefetch(codes + kPrefetchBytes);
}

// Whether the result goes past the caches, as memcpy does with large copies: it would push out what
// is there, and memory would be read before it is overwritten. Streaming stores need alignment.
inline bool ShouldStream(const Fp8Rows& in, const Int8Rows& out) {
  return in.rows * in.columns >= kStreamBytes && in.columns % kStreamAlign == 0 &&
         BlockWidth(in) % kStreamAlign == 0 &&
         reinterpret_cast<uintptr_t>(out.codes) % kStreamAlign == 0;
}

inline bool IsFastScale(float scale) {
  return scale >= kSmallestFastScale && scale <= kLargestFastScale;
}

inline void CheckScales(const Fp8Rows& in, const float* scales, Work& work) {
  for (size_t block = 0; block < in.grid_columns; ++block)
    work.checked[block] = IsFastScale(scales[block]) ? scales[block] * 0x1p8f : kNoFastScale;
  work.checked_of = scales;
}

// A block whose scale is not fast only holds zeros in fast rows.
inline void MultiplyCodes(const Fp8Rows& in, const float* scales, Work& work) {
  for (size_t block = 0; block < in.grid_columns; ++block) {
    const float scale = IsFastScale(scales[block]) ? scales[block] : 0.0f;
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
//   Scanner: takes the codes of a row, Line by Line and the Rest of a block, and fills Work::tops
//   LargestOfRow(in, work, plan, &largest): from `tops` and `checked` the largest |W| and the
//     plan's `doubled`; false when the scalar side must look at the row
//   ConvertBlock<range, stream, scan>(values, s, doubled, codes, count, out, scanned, scanner):
//   makes
//     the table of a row and block from the block's 128 values, and uses it; scans as many codes
//   ScaledQuotients(values, s) and Lanes<range>: the sums of a RowQuality, bit for bit those of
//     fp8_to_int8.cc
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
HWY_INLINE RowQuality Measure(const Fp8Rows& in, const uint8_t* codes, const float* values,
                              float scale) {
  Lanes<kRange> lanes;
  const size_t width = BlockWidth(in);
  for (size_t column = 0; column < in.columns;) {
    if (column % kSegment == 0 && column != 0) lanes.Fold();
    const size_t block = column / width;
    const auto quotients = ScaledQuotients(values + block * kCodes, scale);
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

// What ConvertAndScan works on. It goes by value: bytes are written, which might be anything that a
// reference leads to. Not owned.
struct RowPass {
  const float* values;
  float scale;
  const uint8_t* doubled;
  const uint8_t* codes;
  int8_t* out;
  const uint8_t* scanned;  // a later row
  uint8_t* tops;           // of that row
};

// The blocks [first, last), which begin `width` apart and hold `count` columns each.
template <Int8Range kRange, bool kStream, bool kScan>
HWY_INLINE void ConvertAndScanBlocks(RowPass row, size_t first, size_t last, size_t width,
                                     size_t count, Scanner& scanner) {
  for (size_t block = first; block < last; ++block) {
    const size_t begin = block * width;
    ConvertBlock<kRange, kStream, kScan>(row.values + block * kCodes, row.scale, row.doubled[block],
                                         row.codes + begin, count, row.out + begin,
                                         row.scanned + begin, scanner);
    if constexpr (kScan) scanner.EndBlock(block, row.tops);
  }
}

// Converts a row and scans a later one, line by line in turn: memory is read while arithmetic goes
// on, and reads and writes of memory alternate, which it likes best.
template <Int8Range kRange, bool kStream, bool kScan>
HWY_INLINE void ConvertAndScan(const Fp8Rows& in, RowPass row) {
  Scanner scanner;
  const size_t width = BlockWidth(in), blocks = in.grid_columns;
  const size_t whole = in.columns / width, rest = in.columns % width;
  if (width == kUsualWidth) {  // as a constant, for the compiler
    ConvertAndScanBlocks<kRange, kStream, kScan>(row, 0, whole, kUsualWidth, kUsualWidth, scanner);
  } else {
    ConvertAndScanBlocks<kRange, kStream, kScan>(row, 0, whole, width, width, scanner);
  }
  if (rest != 0)
    ConvertAndScanBlocks<kRange, kStream, kScan>(row, whole, whole + 1, width, rest, scanner);
  if constexpr (kScan) scanner.EndRow(blocks, row.tops);
}

HWY_INLINE void ScanRow(const Fp8Rows& in, const uint8_t* codes, uint8_t* tops) {
  const size_t width = BlockWidth(in);
  Scanner scanner;
  for (size_t block = 0; block < in.grid_columns; ++block) {
    const uint8_t* line = codes + block * width;
    const uint8_t* end = codes + std::min((block + 1) * width, in.columns);
    for (; line + Scanner::kLine <= end; line += Scanner::kLine) scanner.Line(line);
    if (line < end) scanner.Rest(line, static_cast<size_t>(end - line));
    scanner.EndBlock(block, tops);
  }
  scanner.EndRow(in.grid_columns, tops);
}

// Plans the row that was scanned last.
template <Int8Range kRange>
HWY_INLINE void PlanRow(const Fp8Rows& in, size_t row, Work& work) {
  RowPlan& plan = work.PlanOf(row);
  const float* scales = ScaleRow(in, row);
  if (work.checked_of != scales) CheckScales(in, scales, work);
  float largest = 0;
  plan.way = RowPlan::Way::kScalar;
  if (!LargestOfRow(in, work, plan, &largest)) return;
  plan.way = largest > 0 ? RowPlan::Way::kFast : RowPlan::Way::kZero;
  plan.scale = RowScale(largest, kRange);
}

// Converts a planned row, and scans the row after the next if there is one.
template <Int8Range kRange, bool kStream>
HWY_INLINE RowFault ConvertPlanned(const Fp8Rows& in, size_t row, const Int8Rows& out,
                                   RowQuality* quality, Work& work) {
  const RowPlan& plan = work.PlanOf(row);
  const uint8_t* codes = in.codes + row * in.columns;
  const bool scan = row + 2 < in.rows;
  if (plan.way != RowPlan::Way::kFast) {
    if (scan) ScanRow(in, codes + 2 * in.columns, work.tops.get());
    if (plan.way == RowPlan::Way::kScalar) return ConvertRow(in, row, kRange, out, quality);
    StoreZeroRow(in, row, kRange, out, quality);
    return {};
  }
  const float* scales = ScaleRow(in, row);
  if (work.values_of != scales) MultiplyCodes(in, scales, work);
  const RowPass pass = {work.values.get(),
                        plan.scale,
                        plan.doubled.get(),
                        codes,
                        out.codes + row * in.columns,
                        codes + 2 * in.columns,
                        work.tops.get()};
  if (scan) {
    ConvertAndScan<kRange, kStream, true>(in, pass);
  } else {
    ConvertAndScan<kRange, kStream, false>(in, pass);
  }
  out.row_scales[row] = plan.scale;
  if (quality != nullptr) quality[row] = Measure<kRange>(in, codes, work.values.get(), plan.scale);
  return {};
}

// Three rows are under way: one is converted, the next has been planned (before that, so that its
// scale is not waited for), the one after is scanned.
template <Int8Range kRange, bool kStream>
RowFault ConvertFast(const Fp8Rows& in, const Int8Rows& out, RowQuality* quality) {
  Work work(RoomForBlocks(in));
  for (size_t row = 0; row < std::min<size_t>(in.rows, 2); ++row) {
    ScanRow(in, in.codes + row * in.columns, work.tops.get());
    if (row == 0) PlanRow<kRange>(in, 0, work);
  }
  RowFault fault;
  for (size_t row = 0; row < in.rows && fault.kind == RowFault::Kind::kNone; ++row) {
    if (row + 1 < in.rows) PlanRow<kRange>(in, row + 1, work);
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
