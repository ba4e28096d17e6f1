// The kernels for AVX-512 with BF16 and VBMI. Weight codes become BF16 in registers, and VDPBF16PS
// adds two products at a time to 16 rows; no panel of decoded weights is ever written.
//
// This file alone is compiled for AVX-512: it must not use anything that other files could share
// (inline functions of the standard library), and is entered only through ChooseKernel.

#include "backends/cpu/kernel_avx512.h"

#include <immintrin.h>

// Sums live in registers only when the loops over them are unrolled. Under sanitizers, whose checks
// would make minutes of compiling out of that, they need not.
#if defined(__SANITIZE_ADDRESS__)
#define BLOCKSCALE_UNROLL(count)
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BLOCKSCALE_UNROLL(count)
#endif
#endif
#ifndef BLOCKSCALE_UNROLL
#define BLOCKSCALE_PRAGMA(text) _Pragma(#text)
#define BLOCKSCALE_UNROLL(count) BLOCKSCALE_PRAGMA(GCC unroll count)
#endif

namespace blockscale::cpu {

// Tables from codes to BF16, which kernel_choice.cc fills from the codecs.
// Sixteen codes of 4 bits, twice: one for each word of a vector.
alignas(64) uint16_t avx512_e2m1_table[32];
alignas(64) uint16_t avx512_int4_table[32];
// High and low bytes of the BF16 of codes 0..127, and of 128..255.
alignas(64) uint8_t avx512_e4m3_bytes[4][128];
alignas(64) uint8_t avx512_int8_bytes[4][128];

namespace {

// A line's codes as pairs of columns: kPairs vectors of 16 rows x 2 BF16.
template <const uint16_t* kTable>
struct NibbleCodes {
  static constexpr int kPairs = 4;
  __m512i table = _mm512_load_si512(kTable);
  void Decode(const std::byte* line, __m512i* pairs) const {
    const __m512i codes = _mm512_load_si512(line);
    pairs[0] = _mm512_permutexvar_epi16(codes, table);  // takes the low 5 bits: the table repeats
    pairs[1] = _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 4), table);
    pairs[2] = _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 8), table);
    pairs[3] = _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 12), table);
  }
};

// Bytes to words: byte i of a word is pair i.
inline void JoinBytes(__m512i high, __m512i low, __m512i* pairs) {
  const __m512i first = _mm512_set1_epi16(0x00FF);
  // 0xCA: where the mask is set the second operand, else the third.
  pairs[0] = _mm512_ternarylogic_epi32(first, low, _mm512_slli_epi16(high, 8), 0xCA);
  pairs[1] = _mm512_ternarylogic_epi32(first, _mm512_srli_epi16(low, 8), high, 0xCA);
}

struct E4M3Codes {
  static constexpr int kPairs = 2;
  __m512i high0 = _mm512_load_si512(avx512_e4m3_bytes[0]);
  __m512i high1 = _mm512_load_si512(avx512_e4m3_bytes[0] + 64);
  __m512i low0 = _mm512_load_si512(avx512_e4m3_bytes[1]);
  __m512i low1 = _mm512_load_si512(avx512_e4m3_bytes[1] + 64);
  void Decode(const std::byte* line, __m512i* pairs) const {
    const __m512i codes = _mm512_load_si512(line);
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    __m512i high = _mm512_permutex2var_epi8(high0, codes, high1);  // takes the low 7 bits
    const __m512i low = _mm512_permutex2var_epi8(low0, codes, low1);
    high = _mm512_ternarylogic_epi32(high, codes, sign, 0xF8);  // high | (codes & sign)
    JoinBytes(high, low, pairs);
  }
};

struct Int8Codes {
  static constexpr int kPairs = 2;
  static __m512i Look(const uint8_t (&table)[128], __m512i codes) {
    return _mm512_permutex2var_epi8(_mm512_load_si512(table), codes, _mm512_load_si512(table + 64));
  }
  void Decode(const std::byte* line, __m512i* pairs) const {
    const __m512i codes = _mm512_load_si512(line);
    const __mmask64 negative = _mm512_movepi8_mask(codes);
    const __m512i high = _mm512_mask_blend_epi8(negative, Look(avx512_int8_bytes[0], codes),
                                                Look(avx512_int8_bytes[2], codes));
    const __m512i low = _mm512_mask_blend_epi8(negative, Look(avx512_int8_bytes[1], codes),
                                               Look(avx512_int8_bytes[3], codes));
    JoinBytes(high, low, pairs);
  }
};

struct Bf16Codes {
  static constexpr int kPairs = 1;
  void Decode(const std::byte* line, __m512i* pairs) const { pairs[0] = _mm512_load_si512(line); }
};

// The scales of 16 rows in half `half` of a tile; `at` is where the tile's scales begin.
template <TileScale kScale>
inline __m512 LoadScales(const std::byte* at, int half, int quarter) {
  if constexpr (kScale == TileScale::kE8M0) {
    const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(at + 16 * quarter));
    const __m512i bits = _mm512_slli_epi32(_mm512_cvtepu8_epi32(bytes), 23);
    return _mm512_castsi512_ps(_mm512_max_epu32(bits, _mm512_set1_epi32(0x00400000)));  // 2^-127
  } else if constexpr (kScale == TileScale::kUE4M3) {
    const __m128i bytes =
        _mm_load_si128(reinterpret_cast<const __m128i*>(at + 64 * half + 16 * quarter));
    const __m512i bits = _mm512_slli_epi32(_mm512_cvtepu8_epi32(bytes), 20);
    return _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0x1p120f));
  } else if constexpr (kScale == TileScale::kBF16) {
    const __m256i words = _mm256_load_si256(reinterpret_cast<const __m256i*>(at + 32 * quarter));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
  } else {
    return _mm512_set1_ps(1);
  }
}

inline __m512bh Pair(const uint16_t* at) {
  return (__m512bh)_mm512_set1_epi32(*reinterpret_cast<const int*>(at));
}

// kQuarters x 16 rows from quarter `first` on, kRows operand rows.
template <class Codes, TileScale kScale, int kQuarters, int kRows>
void Multiply(const TileMatrix& matrix, size_t block, int first, const KernelRow* rows) {
  constexpr int kHalves = kScale == TileScale::kUE4M3 ? 2 : 1;
  constexpr int kColumns = 2 * Codes::kPairs;  // of a line
  constexpr int kLines = static_cast<int>(kTileColumns) / kColumns;
  const Codes codes;
  const size_t tile_bytes = matrix.format.bytes(), code_bytes = matrix.format.code_bytes();
  const float* block_scales =
      matrix.block_scales ? matrix.block_scales + block * ((matrix.columns + 127) / 128) : nullptr;
  const std::byte* tile = matrix.block(block);
  __m512 acc[kRows][kQuarters];
  for (int m = 0; m < kRows; ++m)
    for (int q = 0; q < kQuarters; ++q) acc[m][q] = _mm512_setzero_ps();
  for (size_t g = 0; g < matrix.groups(); ++g, tile += tile_bytes) {
    BLOCKSCALE_UNROLL(2)
    for (int half = 0; half < kHalves; ++half) {
      __m512 sum[kRows][kQuarters];
      BLOCKSCALE_UNROLL(8)
      for (int m = 0; m < kRows; ++m)
        for (int q = 0; q < kQuarters; ++q) sum[m][q] = _mm512_setzero_ps();
      BLOCKSCALE_UNROLL(16)
      for (int c = half * kLines / kHalves; c < (half + 1) * kLines / kHalves; ++c) {
        __m512i pairs[kQuarters][Codes::kPairs];
        BLOCKSCALE_UNROLL(4)
        for (int q = 0; q < kQuarters; ++q)
          codes.Decode(tile + (4 * c + first + q) * kLine, pairs[q]);
        BLOCKSCALE_UNROLL(4)
        for (int i = 0; i < Codes::kPairs; ++i) {
          BLOCKSCALE_UNROLL(8)
          for (int m = 0; m < kRows; ++m) {
            const __m512bh x = Pair(rows[m].bf16 + g * kTileColumns + c * kColumns + 2 * i);
            BLOCKSCALE_UNROLL(4)
            for (int q = 0; q < kQuarters; ++q)
              sum[m][q] = _mm512_dpbf16_ps(sum[m][q], (__m512bh)pairs[q][i], x);
          }
        }
      }
      BLOCKSCALE_UNROLL(4)
      for (int q = 0; q < kQuarters; ++q) {
        __m512 scale = LoadScales<kScale>(tile + code_bytes, half, first + q);
        if constexpr (kScale == TileScale::kNone)
          if (block_scales != nullptr) scale = _mm512_set1_ps(block_scales[g / 4]);
        BLOCKSCALE_UNROLL(8)
        for (int m = 0; m < kRows; ++m) {
          const __m512 own = rows[m].group_scales
                                 ? _mm512_mul_ps(scale, _mm512_set1_ps(rows[m].group_scales[g]))
                                 : scale;
          acc[m][q] = _mm512_fmadd_ps(sum[m][q], own, acc[m][q]);
        }
      }
    }
  }
  for (int m = 0; m < kRows; ++m)
    for (int q = 0; q < kQuarters; ++q) _mm512_storeu_ps(rows[m].out + 16 * (first + q), acc[m][q]);
}

template <class Codes, TileScale kScale, int kRows>
void MultiplyRows(const TileMatrix& matrix, size_t block, const KernelRow* rows) {
  if constexpr (kRows <= 3) {
    Multiply<Codes, kScale, 4, kRows>(matrix, block, 0, rows);
  } else {
    Multiply<Codes, kScale, 2, kRows>(matrix, block, 0, rows);
    Multiply<Codes, kScale, 2, kRows>(matrix, block, 2, rows);
  }
}

// How many of `left` rows the next pass takes: six fill the registers, the rest is shared out.
size_t NextRows(size_t left) { return left == 7 || left == 8 ? 4 : left < 6 ? left : 6; }

template <class Codes, TileScale kScale>
void RunBlock(const TileMatrix& matrix, size_t block, const KernelRow* rows, size_t count) {
  while (count > 0) {
    const size_t now = NextRows(count);
    switch (now) {
      case 1:
        MultiplyRows<Codes, kScale, 1>(matrix, block, rows);
        break;
      case 2:
        MultiplyRows<Codes, kScale, 2>(matrix, block, rows);
        break;
      case 3:
        MultiplyRows<Codes, kScale, 3>(matrix, block, rows);
        break;
      case 4:
        MultiplyRows<Codes, kScale, 4>(matrix, block, rows);
        break;
      case 5:
        MultiplyRows<Codes, kScale, 5>(matrix, block, rows);
        break;
      default:
        MultiplyRows<Codes, kScale, 6>(matrix, block, rows);
        break;
    }
    rows += now;
    count -= now;
  }
}

}  // namespace

BlockKernel Avx512Kernel(const TileFormat& format) {
  const auto is = [&](Format element, TileScale scale) {
    return format.element == element && format.scale == scale;
  };
  using E2M1Codes = NibbleCodes<avx512_e2m1_table>;
  using Int4Codes = NibbleCodes<avx512_int4_table>;
  if (is(Format::kE2M1, TileScale::kE8M0)) return RunBlock<E2M1Codes, TileScale::kE8M0>;
  if (is(Format::kE2M1, TileScale::kUE4M3)) return RunBlock<E2M1Codes, TileScale::kUE4M3>;
  if (is(Format::kInt4, TileScale::kBF16)) return RunBlock<Int4Codes, TileScale::kBF16>;
  if (is(Format::kE4M3, TileScale::kE8M0)) return RunBlock<E4M3Codes, TileScale::kE8M0>;
  if (is(Format::kE4M3, TileScale::kNone)) return RunBlock<E4M3Codes, TileScale::kNone>;
  if (is(Format::kInt8, TileScale::kNone)) return RunBlock<Int8Codes, TileScale::kNone>;
  if (is(Format::kBF16, TileScale::kNone)) return RunBlock<Bf16Codes, TileScale::kNone>;
  return nullptr;
}

}  // namespace blockscale::cpu
