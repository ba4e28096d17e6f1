// The kernels for AVX-512 with BF16 and VBMI. Weight codes become BF16 in registers, and VDPBF16PS
// adds two products at a time to 16 rows; no panel of decoded weights is ever written.
//
// This file alone is compiled for AVX-512: it must not use anything that other files could share
// (inline functions of the standard library), and is entered only through ChooseKernel.

#include "backends/cpu/kernel_avx512.h"

#include <immintrin.h>

#include "backends/cpu/unroll.h"

namespace blockscale::cpu {

// Tables from codes to BF16, which kernel_choice.cc fills from the codecs.
// Sixteen codes of 4 bits, twice: one for each word of a vector.
alignas(64) uint16_t avx512_e2m1_table[32];
alignas(64) uint16_t avx512_int4_table[32];
// High and low bytes of the BF16 of codes 0..127, and of 128..255.
alignas(64) uint8_t avx512_e4m3_bytes[4][128];
alignas(64) uint8_t avx512_int8_bytes[4][128];

namespace {

// A line's codes as pairs of columns: Load once, then Pair<i> gives 16 rows x 2 BF16 for each of
// kPairs. A pair is made right before it is used, so that few registers hold codes.
template <const uint16_t* kTable>
struct NibbleCodes {
  static constexpr int kPairs = 4;
  using Raw = __m512i;
  __m512i table = _mm512_load_si512(kTable);
  Raw Load(const std::byte* line) const { return _mm512_load_si512(line); }
  template <int kIndex>
  __m512i Pair(Raw raw) const {  // the table repeats: of 5 bits the lowest 4 decide
    return _mm512_permutexvar_epi16(kIndex == 0 ? raw : _mm512_srli_epi16(raw, 4 * kIndex), table);
  }
};

// High and low bytes of BF16, in the places of the codes; byte i of a word belongs to pair i.
struct SplitBytes {
  __m512i high, low;
};

template <int kIndex>
inline __m512i JoinBytes(const SplitBytes& bytes) {
  const __m512i first = _mm512_set1_epi16(0x00FF);
  // 0xCA: where the mask is set the second operand, else the third.
  if constexpr (kIndex == 0)
    return _mm512_ternarylogic_epi32(first, bytes.low, _mm512_slli_epi16(bytes.high, 8), 0xCA);
  else
    return _mm512_ternarylogic_epi32(first, _mm512_srli_epi16(bytes.low, 8), bytes.high, 0xCA);
}

struct E4M3Codes {
  static constexpr int kPairs = 2;
  using Raw = SplitBytes;
  __m512i high0 = _mm512_load_si512(avx512_e4m3_bytes[0]);
  __m512i high1 = _mm512_load_si512(avx512_e4m3_bytes[0] + 64);
  __m512i low0 = _mm512_load_si512(avx512_e4m3_bytes[1]);
  __m512i low1 = _mm512_load_si512(avx512_e4m3_bytes[1] + 64);
  Raw Load(const std::byte* line) const {
    const __m512i codes = _mm512_load_si512(line);
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    const __m512i high = _mm512_permutex2var_epi8(high0, codes, high1);  // takes the low 7 bits
    return {_mm512_ternarylogic_epi32(high, codes, sign, 0xF8),          // high | (codes & sign)
            _mm512_permutex2var_epi8(low0, codes, low1)};
  }
  template <int kIndex>
  __m512i Pair(const Raw& raw) const {
    return JoinBytes<kIndex>(raw);
  }
};

struct Int8Codes {
  static constexpr int kPairs = 2;
  using Raw = SplitBytes;
  static __m512i Look(const uint8_t (&table)[128], __m512i codes) {
    return _mm512_permutex2var_epi8(_mm512_load_si512(table), codes, _mm512_load_si512(table + 64));
  }
  Raw Load(const std::byte* line) const {
    const __m512i codes = _mm512_load_si512(line);
    const __mmask64 negative = _mm512_movepi8_mask(codes);
    return {_mm512_mask_blend_epi8(negative, Look(avx512_int8_bytes[0], codes),
                                   Look(avx512_int8_bytes[2], codes)),
            _mm512_mask_blend_epi8(negative, Look(avx512_int8_bytes[1], codes),
                                   Look(avx512_int8_bytes[3], codes))};
  }
  template <int kIndex>
  __m512i Pair(const Raw& raw) const {
    return JoinBytes<kIndex>(raw);
  }
};

struct Bf16Codes {
  static constexpr int kPairs = 1;
  using Raw = __m512i;
  Raw Load(const std::byte* line) const { return _mm512_load_si512(line); }
  template <int>
  __m512i Pair(Raw raw) const {
    return raw;
  }
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

// Two columns of an operand row, to all lanes.
inline __m512bh Broadcast(const uint16_t* at) {
  return (__m512bh)_mm512_set1_epi32(*reinterpret_cast<const int*>(at));
}

// Pair kIndex of a line for kQuarters x 16 rows, times kRows operand rows.
template <class Codes, int kIndex, int kQuarters, int kRows>
inline void AddPair(const Codes& codes, const typename Codes::Raw (&raw)[kQuarters],
                    const uint16_t* const (&x)[kRows], size_t column,
                    __m512 (&sum)[kRows][kQuarters]) {
  __m512i pair[kQuarters];
  BLOCKSCALE_UNROLL(4)
  for (int q = 0; q < kQuarters; ++q) pair[q] = codes.template Pair<kIndex>(raw[q]);
  BLOCKSCALE_UNROLL(8)
  for (int m = 0; m < kRows; ++m) {
    const __m512bh both = Broadcast(x[m] + column + 2 * kIndex);
    BLOCKSCALE_UNROLL(4)
    for (int q = 0; q < kQuarters; ++q)
      sum[m][q] = _mm512_dpbf16_ps(sum[m][q], (__m512bh)pair[q], both);
  }
  if constexpr (kIndex + 1 < Codes::kPairs) AddPair<Codes, kIndex + 1>(codes, raw, x, column, sum);
}

// kQuarters x 16 rows from quarter `first` on, kRows operand rows.
template <class Codes, TileScale kScale, bool kGroupScales, int kQuarters, int kRows>
void Multiply(const TileMatrix& matrix, size_t block, int first, const KernelRow* rows) {
  constexpr int kHalves = kScale == TileScale::kUE4M3 ? 2 : 1;
  constexpr int kColumns = 2 * Codes::kPairs;  // of a line
  constexpr int kLines = static_cast<int>(kTileColumns) / kColumns / kHalves;
  const Codes codes;
  const size_t groups = matrix.groups(), tile_bytes = matrix.format.bytes();
  const size_t code_bytes = matrix.format.code_bytes();
  const float* block_scales =
      matrix.block_scales ? matrix.block_scales + block * ((matrix.columns + 127) / 128) : nullptr;
  const std::byte* tile = matrix.block(block) + static_cast<size_t>(first) * kLine;
  const uint16_t* x[kRows];
  for (int m = 0; m < kRows; ++m) x[m] = rows[m].bf16;
  __m512 acc[kRows][kQuarters];
  BLOCKSCALE_UNROLL(8)
  for (int m = 0; m < kRows; ++m) BLOCKSCALE_UNROLL(4)
  for (int q = 0; q < kQuarters; ++q) acc[m][q] = _mm512_setzero_ps();
  for (size_t g = 0; g < groups; ++g, tile += tile_bytes) {
    const std::byte* line = tile;
    size_t column = g * kTileColumns;
    BLOCKSCALE_UNROLL(2)
    for (int half = 0; half < kHalves; ++half) {
      __m512 sum[kRows][kQuarters];
      BLOCKSCALE_UNROLL(8)
      for (int m = 0; m < kRows; ++m) BLOCKSCALE_UNROLL(4)
      for (int q = 0; q < kQuarters; ++q) sum[m][q] = _mm512_setzero_ps();
      BLOCKSCALE_UNROLL(2)
      for (int c = 0; c < kLines; ++c, line += 4 * kLine, column += kColumns) {
        typename Codes::Raw raw[kQuarters];
        BLOCKSCALE_UNROLL(4)
        for (int q = 0; q < kQuarters; ++q) raw[q] = codes.Load(line + q * kLine);
        AddPair<Codes, 0>(codes, raw, x, column, sum);
      }
      BLOCKSCALE_UNROLL(4)
      for (int q = 0; q < kQuarters; ++q) {
        __m512 scale = LoadScales<kScale>(tile - first * kLine + code_bytes, half, first + q);
        if constexpr (kScale == TileScale::kNone)
          if (block_scales != nullptr) scale = _mm512_set1_ps(block_scales[g / 4]);
        BLOCKSCALE_UNROLL(8)
        for (int m = 0; m < kRows; ++m) {
          __m512 own = scale;
          if constexpr (kGroupScales)
            own = _mm512_mul_ps(scale, _mm512_set1_ps(rows[m].group_scales[g]));
          acc[m][q] = _mm512_fmadd_ps(sum[m][q], own, acc[m][q]);
        }
      }
    }
  }
  BLOCKSCALE_UNROLL(8)
  for (int m = 0; m < kRows; ++m) BLOCKSCALE_UNROLL(4)
  for (int q = 0; q < kQuarters; ++q) _mm512_storeu_ps(rows[m].out + 16 * (first + q), acc[m][q]);
}

template <class Codes, TileScale kScale, int kRows>
void MultiplyRows(const TileMatrix& matrix, size_t block, const KernelRow* rows) {
  constexpr int kQuarters = kRows <= 2 ? 4 : 2;
  for (int first = 0; first < 4; first += kQuarters)
    if (rows[0].group_scales != nullptr)  // of one scheme: all rows have them or none
      Multiply<Codes, kScale, true, kQuarters, kRows>(matrix, block, first, rows);
    else
      Multiply<Codes, kScale, false, kQuarters, kRows>(matrix, block, first, rows);
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

// A few groups of one row: tiles here and there.
template <class Codes, TileScale kScale>
void RunSparse(const TileMatrix& matrix, size_t block, const SparseRow& row) {
  TileMatrix one_tile = matrix;
  one_tile.columns = kTileColumns;
  float sums[kTileRows];
  for (size_t r = 0; r < kTileRows; ++r) row.out[r] = 0;
  for (size_t i = 0; i < row.count; ++i) {
    one_tile.tiles = matrix.block(block) + row.groups[i] * matrix.format.bytes();
    const KernelRow group{row.bf16 + i * kTileColumns, nullptr, sums};
    Multiply<Codes, kScale, false, 4, 1>(one_tile, 0, 0, &group);
    for (size_t r = 0; r < kTileRows; ++r) row.out[r] += sums[r];
  }
}

template <class Codes, TileScale kScale>
Kernel KernelOf() {
  return {"avx512-bf16", RunBlock<Codes, kScale>, RunSparse<Codes, kScale>, nullptr};
}

}  // namespace

Kernel Avx512Kernel(const TileFormat& format) {
  using E2M1Codes = NibbleCodes<avx512_e2m1_table>;
  using Int4Codes = NibbleCodes<avx512_int4_table>;
  if (format == TileFormat{Format::kE2M1, TileScale::kE8M0})
    return KernelOf<E2M1Codes, TileScale::kE8M0>();
  if (format == TileFormat{Format::kE2M1, TileScale::kUE4M3})
    return KernelOf<E2M1Codes, TileScale::kUE4M3>();
  if (format == TileFormat{Format::kInt4, TileScale::kBF16})
    return KernelOf<Int4Codes, TileScale::kBF16>();
  if (format == TileFormat{Format::kE4M3, TileScale::kE8M0})
    return KernelOf<E4M3Codes, TileScale::kE8M0>();
  if (format == TileFormat{Format::kE4M3, TileScale::kNone})
    return KernelOf<E4M3Codes, TileScale::kNone>();
  if (format == TileFormat{Format::kInt8, TileScale::kNone})
    return KernelOf<Int8Codes, TileScale::kNone>();
  if (format == TileFormat{Format::kBF16, TileScale::kNone})
    return KernelOf<Bf16Codes, TileScale::kNone>();
  return {};
}

}  // namespace blockscale::cpu
