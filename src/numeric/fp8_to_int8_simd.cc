// The fast side of blockscale/fp8_to_int8.h. Highway compiles this file once for each instruction
// set and picks one at run time; rows that it cannot do exactly go to the scalar side.
//
// The whole trick is in one fact: the 126 nonzero magnitudes of E4M3 are 8 mantissas times powers
// of two. So a block needs 8 products W8[m] = fl32((1 + m/8) * scale), a row and block 8 quotients
// Q8[m] = fl32(W8[m] / s), and every other quotient is one of those times a power of two, exactly
// (as long as nothing leaves FP32's normal range, which InFastRange ensures). From them comes one
// table of 128 INT8 codes per row and block, and converting is a table look-up of bytes. The table
// holds negated magnitudes, because INT8 has -128 but no 128.

// Byte permutes over 128 entries (AVX-512 VBMI) come with this target, which Highway leaves out
// unless asked for it.
#define HWY_WANT_AVX3_DL 1
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numeric/fp8_to_int8_simd.cc"
// clang-format off: this include must stand before highway.h
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "numeric/fp8_to_int8.h"

#ifndef BLOCKSCALE_FP8_TO_INT8_ONCE
#define BLOCKSCALE_FP8_TO_INT8_ONCE
namespace blockscale::fp8_to_int8 {

inline constexpr size_t kMantissas = 8;

// What a call needs beyond its arguments; reused from row to row.
struct RowWork {
  std::vector<float> products;     // [grid_columns][8]: W8, of the current row of blocks
  std::vector<float> quotients;    // [grid_columns][8]: Q8, of the current row
  std::vector<uint8_t> magnitude;  // [grid_columns]: largest code & 0x7F in the row
  std::vector<float> scales;       // [grid_columns]: 0 where the block is all zero
  const float* products_of = nullptr;
};

// Far inside FP32's range, so that no product, quotient or power of two below ever rounds twice.
inline bool InFastRange(float scale) { return scale >= 0x1p-48f && scale <= 0x1p48f; }

// The blocks of a row must begin at whole vectors of 32 codes.
inline bool ShapeIsFast(const Fp8Rows& in) {
  return in.grid_columns <= 1 || in.block_columns % kLanes == 0;
}

// The largest |W| of a row from its blocks' largest codes; false if the scalar side must look.
inline bool LargestOfRow(const Fp8Rows& in, const float* scales, RowWork& work, float* largest) {
  *largest = 0;
  for (size_t block = 0; block < in.grid_columns; ++block) {
    const uint8_t code = work.magnitude[block];
    work.scales[block] = code == 0 ? 0.0f : scales[block];
    if (code == 0) continue;
    if (code == kNanMagnitude || !InFastRange(scales[block])) return false;
    *largest = std::max(*largest, kMagnitudes[code] * scales[block]);
  }
  return true;
}

inline void MultiplyMantissas(const Fp8Rows& in, const float* scales, RowWork& work) {
  for (size_t block = 0; block < in.grid_columns; ++block)
    for (size_t m = 0; m < kMantissas; ++m)
      work.products[block * kMantissas + m] =
          (1.0f + 0.125f * static_cast<float>(m)) * scales[block];
  work.products_of = scales;
}

}  // namespace blockscale::fp8_to_int8
#endif  // BLOCKSCALE_FP8_TO_INT8_ONCE

HWY_BEFORE_NAMESPACE();
namespace blockscale::fp8_to_int8 {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
#define BLOCKSCALE_FP8_HAS_FAST 1

// Entry 0..7 of a table are +-0 and the subnormals 1..7 * 2^-9: mantissa and power of two of each.
alignas(32) constexpr int32_t kSubnormalMantissa[8] = {0, 0, 0, 4, 0, 2, 4, 6};
alignas(32) constexpr float kSubnormalPower[8] = {0,       0x1p-9f, 0x1p-8f, 0x1p-8f,
                                                  0x1p-7f, 0x1p-7f, 0x1p-7f, 0x1p-7f};

constexpr float PowerOf(int exponent) {  // 2^(exponent - 7)
  float power = 0x1p-7f;
  for (int i = 0; i < exponent; ++i) power *= 2;
  return power;
}

HWY_INLINE void Divide(const Fp8Rows& in, float scale, RowWork& work) {
  const size_t count = in.grid_columns * kMantissas;
  const __m256 divisor = _mm256_set1_ps(scale);
  for (size_t i = 0; i < count; i += kMantissas)
    _mm256_storeu_ps(&work.quotients[i],
                     _mm256_div_ps(_mm256_loadu_ps(&work.products[i]), divisor));
  // Blocks without a value get a table of zeros, whatever their scale.
  for (size_t block = 0; block < in.grid_columns; ++block)
    if (work.scales[block] == 0) std::fill_n(&work.quotients[block * kMantissas], kMantissas, 0.0f);
}

// The largest code & 0x7F among `count` codes: doubling a byte drops its sign and keeps the order.
HWY_INLINE uint8_t LargestMagnitude(const uint8_t* codes, size_t count) {
  __m256i largest = _mm256_setzero_si256();
  size_t i = 0;
  for (; i + 32 <= count; i += 32) {
    const __m256i code = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i));
    largest = _mm256_max_epu8(largest, _mm256_add_epi8(code, code));
  }
  if (i < count) {
    alignas(32) uint8_t rest[32] = {};
    std::memcpy(rest, codes + i, count - i);
    const __m256i code = _mm256_load_si256(reinterpret_cast<const __m256i*>(rest));
    largest = _mm256_max_epu8(largest, _mm256_add_epi8(code, code));
  }
  __m128i half =
      _mm_max_epu8(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
  // The largest byte is the complement of the smallest complement, which one instruction finds.
  half = _mm_xor_si128(half, _mm_set1_epi8(-1));
  half = _mm_min_epu8(half, _mm_srli_epi16(half, 8));
  half = _mm_minpos_epu16(_mm_and_si128(half, _mm_set1_epi16(0xFF)));
  return static_cast<uint8_t>((0xFF - (_mm_cvtsi128_si32(half) & 0xFF)) >> 1);
}

#if HWY_TARGET == HWY_AVX3_DL
// 512-bit vectors with byte permutes across 128 entries: the table lives in two registers.
struct Table {
  __m512i low, high;  // codes 0..63 and 64..127, negated magnitudes
};

// Packing two vectors of int32 to int16 and two of those to int8 works within each 128-bit lane, so
// lane entry 4L + t of part j must hold entry 16L + 4j + t of its half of the table.
struct Powers {
  alignas(64) float value[8][16];  // [4 * half + part], negated
};

constexpr Powers MakePowers() {
  Powers powers{};
  for (int part = 0; part < 8; ++part) {
    for (int lane = 0; lane < 16; ++lane) {
      const int entry = part / 4 * 64 + lane / 4 * 16 + part % 4 * 4 + lane % 4;
      powers.value[part][lane] = entry < 8 ? -kSubnormalPower[entry] : -PowerOf(entry / 8);
    }
  }
  return powers;
}

constexpr Powers kPowers = MakePowers();

HWY_INLINE __m512i RoundPart(__m512 mantissas, int part) {
  return _mm512_cvtps_epi32(_mm512_mul_ps(mantissas, _mm512_load_ps(kPowers.value[part])));
}

HWY_INLINE Table MakeTable(const float* quotients) {
  const __m512 q = _mm512_castps256_ps512(_mm256_loadu_ps(quotients));
  const __m512 lower = _mm512_broadcast_f32x4(_mm512_castps512_ps128(q));
  const __m512 upper = _mm512_broadcast_f32x4(_mm512_extractf32x4_ps(q, 1));
  // The first lane of the first two parts are the subnormals.
  const __m512 first =
      _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 0, 4, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3), q);
  const __m512 second =
      _mm512_permutexvar_ps(_mm512_setr_epi32(0, 2, 4, 6, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7), q);
  const __m512i low =
      _mm512_packs_epi16(_mm512_packs_epi32(RoundPart(first, 0), RoundPart(second, 1)),
                         _mm512_packs_epi32(RoundPart(lower, 2), RoundPart(upper, 3)));
  const __m512i high =
      _mm512_packs_epi16(_mm512_packs_epi32(RoundPart(lower, 4), RoundPart(upper, 5)),
                         _mm512_packs_epi32(RoundPart(lower, 6), RoundPart(upper, 7)));
  return {low, high};
}

// The permute ignores the sign bit of its indices; positive codes turn their sign with saturation.
HWY_INLINE __m512i LookUp(const Table& table, __m512i code) {
  const __m512i negative = _mm512_permutex2var_epi8(table.low, code, table.high);
  const __mmask64 positive = ~_mm512_movepi8_mask(code);
  return _mm512_mask_subs_epi8(negative, positive, _mm512_setzero_si512(), negative);
}

HWY_INLINE void ConvertBlock(const uint8_t* codes, size_t count, const float* quotients,
                             int8_t* out) {
  const Table table = MakeTable(quotients);
  size_t i = 0;
  for (; i + 64 <= count; i += 64)
    _mm512_storeu_si512(out + i, LookUp(table, _mm512_loadu_si512(codes + i)));
  if (i == count) return;
  const __mmask64 rest = (uint64_t{1} << (count - i)) - 1;
  _mm512_mask_storeu_epi8(out + i, rest, LookUp(table, _mm512_maskz_loadu_epi8(rest, codes + i)));
}
#else
// 256-bit vectors: the table is eight registers of 16 entries, and a byte shuffle that yields zero
// for indices outside its own sixteen lets the eight results be combined with OR.
struct Table {
  __m256i part[8];  // entries 16i..16i+15, in both 128-bit lanes
};

template <int kExponent>
HWY_INLINE __m256i RoundRow(__m256 mantissas) {
  return _mm256_cvtps_epi32(_mm256_mul_ps(mantissas, _mm256_set1_ps(-PowerOf(kExponent))));
}

// Entries 32i..32i+31: four exponents.
template <int kQuarter>
HWY_INLINE void MakeQuarter(__m256 q, __m256i first_row, __m256i* part) {
  constexpr int kFirst = 4 * kQuarter;
  const __m256i words0 = _mm256_packs_epi32(first_row, RoundRow<kFirst + 1>(q));
  const __m256i words1 = _mm256_packs_epi32(RoundRow<kFirst + 2>(q), RoundRow<kFirst + 3>(q));
  // Packing went lane by lane: put the groups of four entries back into order.
  const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(words0, words1),
                                                    _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  part[2 * kQuarter] = _mm256_permute2x128_si256(bytes, bytes, 0x00);
  part[2 * kQuarter + 1] = _mm256_permute2x128_si256(bytes, bytes, 0x11);
}

HWY_INLINE Table MakeTable(const float* quotients) {
  const __m256 q = _mm256_loadu_ps(quotients);
  const __m256i order = _mm256_load_si256(reinterpret_cast<const __m256i*>(kSubnormalMantissa));
  const __m256 subnormal = _mm256_sub_ps(
      _mm256_setzero_ps(),
      _mm256_mul_ps(_mm256_permutevar8x32_ps(q, order), _mm256_load_ps(kSubnormalPower)));
  Table table;
  MakeQuarter<0>(q, _mm256_cvtps_epi32(subnormal), table.part);
  MakeQuarter<1>(q, RoundRow<4>(q), table.part);
  MakeQuarter<2>(q, RoundRow<8>(q), table.part);
  MakeQuarter<3>(q, RoundRow<12>(q), table.part);
  return table;
}

HWY_INLINE __m256i LookUp(const Table& table, __m256i code) {
  const __m256i magnitude = _mm256_and_si256(code, _mm256_set1_epi8(kMagnitude));
  const __m256i limit = _mm256_set1_epi8(0x70);
  __m256i negative = _mm256_setzero_si256();
  for (int part = 0; part < 8; ++part) {
    // Inside this part the index becomes 0x70..0x7F, elsewhere its top bit is set.
    const __m256i index = _mm256_adds_epu8(
        _mm256_xor_si256(magnitude, _mm256_set1_epi8(static_cast<char>(part << 4))), limit);
    negative = _mm256_or_si256(negative, _mm256_shuffle_epi8(table.part[part], index));
  }
  const __m256i positive = _mm256_subs_epi8(_mm256_setzero_si256(), negative);
  return _mm256_blendv_epi8(positive, negative, code);  // by the sign bit of the code
}

HWY_INLINE void ConvertBlock(const uint8_t* codes, size_t count, const float* quotients,
                             int8_t* out) {
  const Table table = MakeTable(quotients);
  size_t i = 0;
  for (; i + 32 <= count; i += 32)
    _mm256_storeu_si256(
        reinterpret_cast<__m256i*>(out + i),
        LookUp(table, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i))));
  if (i == count) return;
  alignas(32) uint8_t rest[32] = {};
  std::memcpy(rest, codes + i, count - i);
  const __m256i result = LookUp(table, _mm256_load_si256(reinterpret_cast<const __m256i*>(rest)));
  alignas(32) int8_t bytes[32];
  _mm256_store_si256(reinterpret_cast<__m256i*>(bytes), result);
  std::memcpy(out + i, bytes, count - i);
}
#endif

// Sums of 32 lanes in four vectors; see fp8_to_int8.cc for what they must equal.
class Lanes {
 public:
  HWY_INLINE Lanes() {
    for (int i = 0; i < 4; ++i) squares_[i] = errors_[i] = _mm256_setzero_ps();
    largest_ = _mm256_setzero_ps();
  }

  // Eight columns: W / s and the code it became.
  HWY_INLINE void Add(int i, __m256 value, __m256 rounded) {
    const __m256 error = _mm256_sub_ps(value, rounded);
    squares_[i] = _mm256_fmadd_ps(value, value, squares_[i]);
    errors_[i] = _mm256_fmadd_ps(error, error, errors_[i]);
    largest_ = _mm256_max_ps(largest_, _mm256_andnot_ps(_mm256_set1_ps(-0.0f), error));
  }

  HWY_INLINE void Fold() {
    sum_squares_ += FoldLanes(Take(squares_));
    sum_errors_ += FoldLanes(Take(errors_));
  }

  HWY_INLINE RowQuality Finish() {
    alignas(32) float largest[8];
    _mm256_store_ps(largest, largest_);
    return {static_cast<float>(sum_squares_), static_cast<float>(sum_errors_),
            *std::max_element(largest, largest + 8), false};
  }

 private:
  static HWY_INLINE std::array<float, kLanes> Take(__m256 (&lanes)[4]) {
    std::array<float, kLanes> values;
    for (int i = 0; i < 4; ++i) {
      _mm256_storeu_ps(&values[8 * i], lanes[i]);
      lanes[i] = _mm256_setzero_ps();
    }
    return values;
  }

  __m256 squares_[4], errors_[4], largest_;
  double sum_squares_ = 0, sum_errors_ = 0;
};

// W / s of eight codes: a mantissa's quotient times the power of two of the code's exponent.
HWY_INLINE __m256 Quotients(__m256i code, __m256 q, __m256 subnormal) {
  const __m256i exponent_bits = _mm256_and_si256(code, _mm256_set1_epi32(0x78));
  // 2^(exponent - 7) as FP32 bits: the exponent field begins at bit 23, the code's at bit 3.
  const __m256 power = _mm256_castsi256_ps(
      _mm256_add_epi32(_mm256_slli_epi32(exponent_bits, 20), _mm256_set1_epi32(120 << 23)));
  // The permute looks at the low three bits of each index: the mantissa.
  const __m256 normal = _mm256_mul_ps(_mm256_permutevar8x32_ps(q, code), power);
  const __m256 small = _mm256_permutevar8x32_ps(subnormal, code);
  const __m256i is_small = _mm256_cmpeq_epi32(exponent_bits, _mm256_setzero_si256());
  const __m256 value = _mm256_blendv_ps(normal, small, _mm256_castsi256_ps(is_small));
  const __m256i sign = _mm256_and_si256(_mm256_slli_epi32(code, 24), _mm256_set1_epi32(1 << 31));
  return _mm256_or_ps(value, _mm256_castsi256_ps(sign));
}

HWY_INLINE void Measure32(const uint8_t* codes, const int8_t* result, __m256 q, __m256 subnormal,
                          Lanes& lanes) {
  for (int i = 0; i < 4; ++i) {
    const __m256i code =
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + 8 * i)));
    const __m256i rounded =
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(result + 8 * i)));
    lanes.Add(i, Quotients(code, q, subnormal), _mm256_cvtepi32_ps(rounded));
  }
}

// What the codes of a row lost against what they stand for.
HWY_INLINE RowQuality Measure(const Fp8Rows& in, const uint8_t* codes, const int8_t* result,
                              const RowWork& work) {
  Lanes lanes;
  const __m256i order = _mm256_load_si256(reinterpret_cast<const __m256i*>(kSubnormalMantissa));
  for (size_t column = 0; column < in.columns;) {
    if (column % kSegment == 0 && column != 0) lanes.Fold();
    const size_t block = in.grid_columns <= 1 ? 0 : column / in.block_columns;
    const __m256 q = _mm256_loadu_ps(&work.quotients[block * kMantissas]);
    const __m256 subnormal =
        _mm256_mul_ps(_mm256_permutevar8x32_ps(q, order), _mm256_load_ps(kSubnormalPower));
    const size_t block_end = in.grid_columns <= 1 ? in.columns : (block + 1) * in.block_columns;
    const size_t segment_end = (column / kSegment + 1) * kSegment;
    const size_t end = std::min({block_end, segment_end, in.columns});
    for (; column + 32 <= end; column += 32)
      Measure32(codes + column, result + column, q, subnormal, lanes);
    if (column < end) {  // only at the end of the row: zeros add nothing
      alignas(32) uint8_t code_rest[32] = {};
      alignas(32) int8_t result_rest[32] = {};
      std::memcpy(code_rest, codes + column, end - column);
      std::memcpy(result_rest, result + column, end - column);
      Measure32(code_rest, result_rest, q, subnormal, lanes);
      column = end;
    }
  }
  lanes.Fold();
  return lanes.Finish();
}

// False when the scalar side must do this row.
HWY_INLINE bool ConvertRowFast(const Fp8Rows& in, size_t row, Int8Range range, const Int8Rows& out,
                               RowQuality* quality, RowWork& work) {
  const uint8_t* codes = in.codes + row * in.columns;
  int8_t* result = out.codes + row * in.columns;
  const float* scales = in.scales + (in.first_row + row) / in.block_rows * in.grid_columns;
  const size_t width = in.grid_columns <= 1 ? in.columns : in.block_columns;
  for (size_t block = 0; block < in.grid_columns; ++block) {
    const size_t begin = block * width;
    work.magnitude[block] = LargestMagnitude(codes + begin, std::min(width, in.columns - begin));
  }
  float largest = 0;
  if (!LargestOfRow(in, scales, work, &largest) || largest == 0) return false;
  if (work.products_of != scales) MultiplyMantissas(in, scales, work);
  const float scale = RowScale(largest, range);
  Divide(in, scale, work);
  for (size_t block = 0; block < in.grid_columns; ++block) {
    const size_t begin = block * width;
    ConvertBlock(codes + begin, std::min(width, in.columns - begin),
                 &work.quotients[block * kMantissas], result + begin);
  }
  out.row_scales[row] = scale;
  if (quality != nullptr) quality[row] = Measure(in, codes, result, work);
  return true;
}
#else
#define BLOCKSCALE_FP8_HAS_FAST 0
#endif

RowFault ConvertRows(const Fp8Rows& in, Int8Range range, const Int8Rows& out, RowQuality* quality) {
#if BLOCKSCALE_FP8_HAS_FAST
  RowWork work;
  work.products.resize(in.grid_columns * kMantissas);
  work.quotients.resize(in.grid_columns * kMantissas);
  work.magnitude.resize(in.grid_columns);
  work.scales.resize(in.grid_columns);
  const bool fast = ShapeIsFast(in);
#endif
  for (size_t row = 0; row < in.rows; ++row) {
#if BLOCKSCALE_FP8_HAS_FAST
    if (fast && ConvertRowFast(in, row, range, out, quality, work)) continue;
#endif
    const RowFault fault = ConvertRow(in, row, range, out, quality);
    if (fault.kind != RowFault::Kind::kNone) return fault;
  }
  return {};
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
