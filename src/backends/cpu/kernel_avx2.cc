// The kernels for AVX2 with FMA, for processors without AVX-512: weight codes become FP32 in
// registers, once for up to four operand rows.
//
// A line's words alternate between two columns of one row. Widened to dwords by the unpack
// instructions, which work in halves of 128 bits, eight rows are two vectors of 4 rows x 2 columns:
//
//   lanes of the first vector   rows 0 0 1 1 4 4 5 5, of the second 2 2 3 3 6 6 7 7
//
// and an operand's two columns reach them by one broadcast of 64 bits. A group's sums of even and
// of odd columns are added at its end, where rows come into order again. Every number of operand
// rows runs the same additions.
//
// This file alone is compiled for AVX2: it must not use anything that other files could share
// (inline functions of the standard library), and is entered only through kernel_choice.cc.

#include "backends/cpu/kernel_avx2.h"

#include <immintrin.h>

#include "backends/cpu/unroll.h"

namespace blockscale::cpu {

// Tables from codes to BF16, which kernel_choice.cc fills from the codecs.
alignas(32) uint8_t avx2_e2m1_bytes[2][32];
alignas(32) uint8_t avx2_int4_bytes[2][32];

namespace {

constexpr int kStripRows = 8;
constexpr int kStrips = static_cast<int>(kTileRows) / kStripRows;
constexpr int kPairsOfGroup = static_cast<int>(kTileColumns) / 2;
constexpr size_t kHalfLine = kLine / 2;  // a strip's part of a line

#include "backends/cpu/kernel_avx2_codes.inc"

// One group of an operand row.
struct GroupRow {
  const uint16_t* bf16;
  float own;   // its group scale
  float* out;  // 64 sums, added to
};

// kRows operand rows' group as FP32, two columns to a double.
template <int kRows>
struct Columns {
  alignas(32) double pairs[kRows][kPairsOfGroup];

  explicit Columns(const GroupRow (&rows)[kRows]) {
    for (int m = 0; m < kRows; ++m)
      for (int i = 0; i < static_cast<int>(kTileColumns); i += 8) {
        const __m128i eight = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[m].bf16 + i));
        _mm256_store_pd(&pairs[m][i / 2], _mm256_castps_pd(LowWord(_mm256_cvtepu16_epi32(eight))));
      }
  }
};

// One pair of columns of kWide strips, times kRows operand rows.
template <class Codes, bool kHigh, int kWide, int kRows>
inline void AddPair(const Words (&words)[kWide], const Columns<kRows>& x, int pair,
                    __m256 (&sum)[kRows][2 * kWide]) {
  __m256 code[2 * kWide];
  BLOCKSCALE_UNROLL(2)
  for (int s = 0; s < kWide; ++s) {
    code[2 * s] = kHigh ? Codes::High(words[s].first) : Codes::Low(words[s].first);
    code[2 * s + 1] = kHigh ? Codes::High(words[s].second) : Codes::Low(words[s].second);
  }
  BLOCKSCALE_UNROLL(8)
  for (int m = 0; m < kRows; ++m) {
    const __m256 both = _mm256_castpd_ps(_mm256_broadcast_sd(&x.pairs[m][pair]));
    BLOCKSCALE_UNROLL(4)
    for (int v = 0; v < 2 * kWide; ++v) sum[m][v] = _mm256_fmadd_ps(both, code[v], sum[m][v]);
  }
}

template <class Codes, int kSet, int kWide, int kRows>
inline void AddSets(const Codes& codes, const std::byte* line, const Columns<kRows>& x, int pair,
                    __m256 (&sum)[kRows][2 * kWide]) {
  Words words[kWide];
  BLOCKSCALE_UNROLL(2)
  for (int s = 0; s < kWide; ++s)
    words[s] = codes.template Set<kSet>(_mm256_load_si256(
        reinterpret_cast<const __m256i*>(line + static_cast<size_t>(s) * kHalfLine)));
  constexpr int kHighPair = Codes::kHasLow ? kSet + Codes::kSets : kSet;
  if constexpr (Codes::kHasLow) AddPair<Codes, false>(words, x, pair + kSet, sum);
  AddPair<Codes, true>(words, x, pair + kHighPair, sum);
  if constexpr (kSet + 1 < Codes::kSets) AddSets<Codes, kSet + 1, kWide>(codes, line, x, pair, sum);
}

// kWide strips of a tile from `strip` on, one half of a group, kRows operand rows.
template <class Codes, TileScale kScale, int kWide, int kRows>
inline void AddStrips(const Codes& codes, const std::byte* tile, size_t code_bytes, float whole,
                      int half, int strip, const Columns<kRows>& x, const GroupRow (&rows)[kRows]) {
  constexpr int kHalves = kScale == TileScale::kUE4M3 ? 2 : 1;
  constexpr int kPairs = Codes::kSets * (Codes::kHasLow ? 2 : 1);  // of a line
  constexpr int kEnd = kPairsOfGroup / kHalves;
  const std::byte* line = tile + static_cast<size_t>(strip) * kHalfLine +
                          static_cast<size_t>(half * (kEnd / kPairs)) * 4 * kLine;
  __m256 sum[kRows][2 * kWide];
  BLOCKSCALE_UNROLL(8)
  for (int m = 0; m < kRows; ++m) BLOCKSCALE_UNROLL(4)
  for (int v = 0; v < 2 * kWide; ++v) sum[m][v] = _mm256_setzero_ps();
  for (int pair = 0; pair < kEnd; pair += kPairs, line += 4 * kLine)
    AddSets<Codes, 0, kWide>(codes, line, x, half * kEnd + pair, sum);
  BLOCKSCALE_UNROLL(2)
  for (int s = 0; s < kWide; ++s) {
    __m256 scale = LoadScales<kScale>(tile + code_bytes, half, strip + s);
    if constexpr (kScale == TileScale::kNone) scale = _mm256_set1_ps(whole);
    BLOCKSCALE_UNROLL(8)
    for (int m = 0; m < kRows; ++m) {
      const __m256 even = _mm256_shuffle_ps(sum[m][2 * s], sum[m][2 * s + 1], 0x88);
      const __m256 odd = _mm256_shuffle_ps(sum[m][2 * s], sum[m][2 * s + 1], 0xDD);
      float* out = rows[m].out + kStripRows * (strip + s);
      _mm256_storeu_ps(out, _mm256_fmadd_ps(_mm256_add_ps(even, odd),
                                            _mm256_mul_ps(scale, _mm256_set1_ps(rows[m].own)),
                                            _mm256_loadu_ps(out)));
    }
  }
}

// Adds one group of kRows operand rows to their sums.
template <class Codes, TileScale kScale, int kRows>
void AddGroup(const TileMatrix& matrix, size_t block, size_t group, const GroupRow (&rows)[kRows]) {
  constexpr int kHalves = kScale == TileScale::kUE4M3 ? 2 : 1;
  constexpr int kWide = kRows <= 2 ? 2 : 1;  // up to eight sums in registers
  const Codes codes;
  const Columns<kRows> x(rows);
  const std::byte* tile = matrix.block(block) + group * matrix.format.bytes();
  const size_t code_bytes = matrix.format.code_bytes();
  float whole = 1;
  if (matrix.block_scales != nullptr)
    whole = matrix.block_scales[block * ((matrix.columns + 127) / 128) + group / 4];
  for (int strip = 0; strip < kStrips; strip += kWide)
    for (int half = 0; half < kHalves; ++half)
      AddStrips<Codes, kScale, kWide>(codes, tile, code_bytes, whole, half, strip, x, rows);
}

inline void Clear(float* out) {
  for (size_t r = 0; r < kTileRows; ++r) out[r] = 0;
}

template <class Codes, TileScale kScale, int kRows>
void MultiplyRows(const TileMatrix& matrix, size_t block, const KernelRow* rows) {
  GroupRow now[kRows];
  for (int m = 0; m < kRows; ++m) Clear(rows[m].out);
  const size_t groups = matrix.groups();
  for (size_t g = 0; g < groups; ++g) {
    for (int m = 0; m < kRows; ++m) {
      const float* scales = rows[m].group_scales;
      now[m] = {rows[m].bf16 + g * kTileColumns, scales != nullptr ? scales[g] : 1, rows[m].out};
    }
    AddGroup<Codes, kScale>(matrix, block, g, now);
  }
}

// How many of `left` rows the next pass takes: four fill the registers, five are three and two.
size_t NextRows(size_t left) { return left <= 4 ? left : left == 5 || left == 6 ? 3 : 4; }

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
      default:
        MultiplyRows<Codes, kScale, 4>(matrix, block, rows);
        break;
    }
    rows += now;
    count -= now;
  }
}

template <class Codes, TileScale kScale>
void RunSparse(const TileMatrix& matrix, size_t block, const SparseRow& row) {
  Clear(row.out);
  for (size_t i = 0; i < row.count; ++i) {
    const GroupRow group[1] = {{row.bf16 + i * kTileColumns, 1, row.out}};
    AddGroup<Codes, kScale>(matrix, block, row.groups[i], group);
  }
}

template <class Codes, TileScale kScale>
Kernel KernelOf() {
  return {"avx2", RunBlock<Codes, kScale>, RunSparse<Codes, kScale>, nullptr};
}

}  // namespace

Kernel Avx2Kernel(const TileFormat& format) {
  using E2M1Codes = NibbleCodes<avx2_e2m1_bytes>;
  using Int4Codes = NibbleCodes<avx2_int4_bytes>;
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
