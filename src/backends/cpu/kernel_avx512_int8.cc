// The kernels for rows of INT8: VPDPBUSD multiplies four columns of 16 rows at a time, sums are
// INT32 and exact. Compiled for AVX-512 alone; see kernel_avx512.cc for what that forbids.
//
// VPDPBUSD wants its first factor unsigned, so weights are moved up by an offset ("value + 12" for
// twice E2M1) and a group's sum starts at -offset * sum(row).

#include <immintrin.h>

#include "backends/cpu/kernel_avx512.h"
#include "backends/cpu/unroll.h"

namespace blockscale::cpu {

alignas(64) uint8_t avx512_e2m1_unsigned[64];
alignas(64) uint8_t avx512_int4_unsigned[64];

namespace {

constexpr int kGroupLinesOfNibbles = 4, kGroupLinesOfBytes = 8;

inline __m512i Four(const int8_t* at) {
  return _mm512_set1_epi32(*reinterpret_cast<const int*>(at));
}

// A line of nibbles: 16 rows x 8 columns, as two vectors of four columns each.
template <const uint8_t* kTable>
struct NibbleLine {
  static constexpr int kLines = kGroupLinesOfNibbles, kParts = 2;
  __m512i table = _mm512_load_si512(kTable);
  void Load(const std::byte* line, __m512i* parts) const {
    const __m512i codes = _mm512_load_si512(line);
    parts[0] = _mm512_permutexvar_epi8(codes, table);  // the table repeats: 4 of 6 bits decide
    parts[1] = _mm512_permutexvar_epi8(_mm512_srli_epi16(codes, 4), table);
  }
};

struct ByteLine {
  static constexpr int kLines = kGroupLinesOfBytes, kParts = 1;
  void Load(const std::byte* line, __m512i* parts) const {
    parts[0] = _mm512_xor_si512(_mm512_load_si512(line), _mm512_set1_epi8(static_cast<char>(0x80)));
  }
};

// The scales of 16 rows of a tile, E8M0 or BF16; 1 where there are none.
template <TileScale kScale>
inline __m512 Scales(const std::byte* at, int quarter) {
  if constexpr (kScale == TileScale::kE8M0) {
    const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(at + 16 * quarter));
    const __m512i bits = _mm512_slli_epi32(_mm512_cvtepu8_epi32(bytes), 23);
    return _mm512_castsi512_ps(_mm512_max_epu32(bits, _mm512_set1_epi32(0x00400000)));
  } else if constexpr (kScale == TileScale::kBF16) {
    const __m256i words = _mm256_load_si256(reinterpret_cast<const __m256i*>(at + 32 * quarter));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
  } else {
    return _mm512_set1_ps(1);
  }
}

// One group's lines added to `sum`.
template <class Line, int kQuarters, int kRows>
inline void AddGroup(const Line& lines, const std::byte* line, const int8_t* const (&x)[kRows],
                     size_t column, __m512i (&sum)[kRows][kQuarters]) {
  BLOCKSCALE_UNROLL(2)
  for (int c = 0; c < Line::kLines; ++c, line += 4 * kLine, column += 4 * Line::kParts) {
    __m512i parts[kQuarters][Line::kParts];
    BLOCKSCALE_UNROLL(4)
    for (int q = 0; q < kQuarters; ++q) lines.Load(line + q * kLine, parts[q]);
    BLOCKSCALE_UNROLL(8)
    for (int m = 0; m < kRows; ++m) {
      BLOCKSCALE_UNROLL(2)
      for (int p = 0; p < Line::kParts; ++p) {
        const __m512i four = Four(x[m] + column + 4 * p);
        BLOCKSCALE_UNROLL(4)
        for (int q = 0; q < kQuarters; ++q)
          sum[m][q] = _mm512_dpbusd_epi32(sum[m][q], parts[q][p], four);
      }
    }
  }
}

template <class Line, TileScale kScale, int kQuarters, int kRows>
void Multiply(const TileMatrix& matrix, size_t block, int first, const Int8Row* rows) {
  const Line lines;
  const size_t groups = matrix.groups(), tile_bytes = matrix.format.bytes();
  const std::byte* tile = matrix.block(block);
  const std::byte* line = tile + static_cast<size_t>(first) * kLine;
  const std::byte* scales = tile + matrix.format.code_bytes();
  const int8_t* x[kRows];
  for (int m = 0; m < kRows; ++m) x[m] = rows[m].codes;
  __m512 acc[kRows][kQuarters];
  BLOCKSCALE_UNROLL(8)
  for (int m = 0; m < kRows; ++m) BLOCKSCALE_UNROLL(4)
  for (int q = 0; q < kQuarters; ++q) acc[m][q] = _mm512_setzero_ps();
  for (size_t g = 0; g < groups; ++g, line += tile_bytes, scales += tile_bytes) {
    __m512i sum[kRows][kQuarters];
    BLOCKSCALE_UNROLL(8)
    for (int m = 0; m < kRows; ++m) BLOCKSCALE_UNROLL(4)
    for (int q = 0; q < kQuarters; ++q) sum[m][q] = _mm512_set1_epi32(rows[m].starts[g]);
    AddGroup<Line, kQuarters, kRows>(lines, line, x, g * kTileColumns, sum);
    BLOCKSCALE_UNROLL(4)
    for (int q = 0; q < kQuarters; ++q) {
      const __m512 scale = Scales<kScale>(scales, first + q);
      BLOCKSCALE_UNROLL(8)
      for (int m = 0; m < kRows; ++m)
        acc[m][q] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[m][q]),
                                    _mm512_mul_ps(scale, _mm512_set1_ps(rows[m].group_scales[g])),
                                    acc[m][q]);
    }
  }
  BLOCKSCALE_UNROLL(8)
  for (int m = 0; m < kRows; ++m) BLOCKSCALE_UNROLL(4)
  for (int q = 0; q < kQuarters; ++q) _mm512_storeu_ps(rows[m].out + 16 * (first + q), acc[m][q]);
}

// Rows with one scale each on weights with one scale a row: INT32 to the end, one rounding.
template <int kQuarters, int kRows>
void MultiplyWhole(const TileMatrix& matrix, size_t block, int first, const Int8Row* rows) {
  const ByteLine lines;
  const size_t groups = matrix.groups(), tile_bytes = matrix.format.bytes();
  const std::byte* line = matrix.block(block) + static_cast<size_t>(first) * kLine;
  const int8_t* x[kRows];
  __m512i sum[kRows][kQuarters];
  BLOCKSCALE_UNROLL(8)
  for (int m = 0; m < kRows; ++m) {
    x[m] = rows[m].codes;
    BLOCKSCALE_UNROLL(4)
    for (int q = 0; q < kQuarters; ++q) sum[m][q] = _mm512_set1_epi32(rows[m].whole_start);
  }
  for (size_t g = 0; g < groups; ++g, line += tile_bytes)
    AddGroup<ByteLine, kQuarters, kRows>(lines, line, x, g * kTileColumns, sum);
  BLOCKSCALE_UNROLL(8)
  for (int m = 0; m < kRows; ++m) BLOCKSCALE_UNROLL(4)
  for (int q = 0; q < kQuarters; ++q)
    _mm512_storeu_ps(rows[m].out + 16 * (first + q), _mm512_cvtepi32_ps(sum[m][q]));
}

template <class Line, TileScale kScale, int kRows>
void MultiplyRows(const TileMatrix& matrix, size_t block, const Int8Row* rows) {
  constexpr int kQuarters = kRows <= 2 ? 4 : 2;
  for (int first = 0; first < 4; first += kQuarters) {
    if constexpr (kScale == TileScale::kNone)
      if (rows[0].group_scales == nullptr) {  // of one scheme: all rows have them or none
        MultiplyWhole<kQuarters, kRows>(matrix, block, first, rows);
        continue;
      }
    Multiply<Line, kScale, kQuarters, kRows>(matrix, block, first, rows);
  }
}

size_t NextRows(size_t left) { return left == 7 || left == 8 ? 4 : left < 6 ? left : 6; }

template <class Line, TileScale kScale>
void RunBlock(const TileMatrix& matrix, size_t block, const Int8Row* rows, size_t count) {
  while (count > 0) {
    const size_t now = NextRows(count);
    switch (now) {
      case 1:
        MultiplyRows<Line, kScale, 1>(matrix, block, rows);
        break;
      case 2:
        MultiplyRows<Line, kScale, 2>(matrix, block, rows);
        break;
      case 3:
        MultiplyRows<Line, kScale, 3>(matrix, block, rows);
        break;
      case 4:
        MultiplyRows<Line, kScale, 4>(matrix, block, rows);
        break;
      case 5:
        MultiplyRows<Line, kScale, 5>(matrix, block, rows);
        break;
      default:
        MultiplyRows<Line, kScale, 6>(matrix, block, rows);
        break;
    }
    rows += now;
    count -= now;
  }
}

}  // namespace

Int8Kernel Avx512Int8Kernel(const TileFormat& format) {
  if (format == TileFormat{Format::kE2M1, TileScale::kE8M0})
    return RunBlock<NibbleLine<avx512_e2m1_unsigned>, TileScale::kE8M0>;
  if (format == TileFormat{Format::kInt4, TileScale::kBF16})
    return RunBlock<NibbleLine<avx512_int4_unsigned>, TileScale::kBF16>;
  if (format == TileFormat{Format::kInt8, TileScale::kNone})
    return RunBlock<ByteLine, TileScale::kNone>;
  return nullptr;
}

}  // namespace blockscale::cpu
