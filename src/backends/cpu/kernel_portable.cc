// The kernels' definition in plain C++: lanes over rows, so that compilers may use vectors.

#include <array>
#include <cstring>

#include "backends/cpu/kernel.h"
#include "numeric/block_quant.h"

namespace blockscale::cpu {
namespace {

constexpr size_t kHalf = 16;

float DecodeCode(Format element, uint32_t code) {
  switch (element) {
    case Format::kE2M1:
      return E2M1::Decode(static_cast<uint8_t>(code));
    case Format::kE4M3:
      return E4M3::Decode(static_cast<uint8_t>(code));
    case Format::kInt8:
      return static_cast<float>(static_cast<int8_t>(code));
    case Format::kInt4:
      return Int4::Decode(static_cast<uint8_t>(code));
    default:
      return BF16::Decode(static_cast<uint16_t>(code));
  }
}

template <Format kElement>
const std::array<float, 256>& Table() {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> values{};
    for (uint32_t code = 0; code < 256; ++code) values[code] = DecodeCode(kElement, code);
    return values;
  }();
  return table;
}

const float* TableOf(Format element) {
  switch (element) {
    case Format::kE2M1:
      return Table<Format::kE2M1>().data();
    case Format::kE4M3:
      return Table<Format::kE4M3>().data();
    case Format::kInt8:
      return Table<Format::kInt8>().data();
    case Format::kInt4:
      return Table<Format::kInt4>().data();
    default:
      return nullptr;
  }
}

void DecodeScalesOf(const TileMatrix& matrix, size_t block, size_t group, const std::byte* at,
                    float* scales) {
  for (size_t r = 0; r < kTileRows; ++r) {
    float first = 1, second = 1;
    if (matrix.format.scale == TileScale::kE8M0)
      first = second = E8M0::Decode(static_cast<uint8_t>(at[r]));
    if (matrix.format.scale == TileScale::kUE4M3) {
      first = UE4M3::Decode(static_cast<uint8_t>(at[r]));
      second = UE4M3::Decode(static_cast<uint8_t>(at[kLine + r]));
    }
    if (matrix.format.scale == TileScale::kBF16) {
      uint16_t code = 0;
      std::memcpy(&code, at + 2 * r, 2);
      first = second = BF16::Decode(code);
    }
    if (matrix.block_scales != nullptr)
      first = second = matrix.block_scales[block * ((matrix.columns + 127) / 128) + group / 4];
    scales[r] = first;
    scales[kTileRows + r] = second;
  }
}

}  // namespace

void DecodeTile(const TileMatrix& matrix, size_t block, size_t group, float* codes, float* scales) {
  const TileFormat& format = matrix.format;
  const std::byte* tile = matrix.block(block) + group * format.bytes();
  const size_t bits = static_cast<size_t>(BitsOf(format.element));
  const float* table = TableOf(format.element);
  const uint32_t mask = (1u << bits) - 1;
  const size_t per_word = 16 / bits;
  for (size_t line = 0; line < format.code_bytes() / kLine; ++line)
    for (size_t w = 0; w < kLine / 2; ++w) {
      uint16_t word = 0;
      std::memcpy(&word, tile + line * kLine + 2 * w, 2);
      const size_t row = line % 4 * kQuarter + w / 2;
      for (size_t i = 0; i < per_word; ++i) {
        const size_t column = line / 4 * 2 * per_word + 2 * i + w % 2;
        const uint32_t code = (word >> (i * bits)) & mask;
        codes[column * kTileRows + row] =
            table != nullptr ? table[code] : BF16::Decode(static_cast<uint16_t>(code));
      }
    }
  DecodeScalesOf(matrix, block, group, tile + format.code_bytes(), scales);
}

namespace {

// Adds one group of one row to its sums.
void AddGroup(const TileMatrix& matrix, const uint16_t* bf16, float own, const float* codes,
              const float* scales, float* out) {
  const size_t step = matrix.format.scale == TileScale::kUE4M3 ? kHalf : kTileColumns;
  for (size_t first = 0; first < kTileColumns; first += step) {
    float sum[kTileRows] = {};
    for (size_t k = first; k < first + step; ++k) {
      const float x = BF16::Decode(bf16[k]);
      for (size_t r = 0; r < kTileRows; ++r) sum[r] += x * codes[k * kTileRows + r];
    }
    const float* scale = scales + (first == 0 ? 0 : kTileRows);
    // Powers of two times a sum are exact, so that this equals a fused multiply-add there.
    for (size_t r = 0; r < kTileRows; ++r) out[r] += sum[r] * (scale[r] * own);
  }
}

}  // namespace

void RunBlockPortable(const TileMatrix& matrix, size_t block, const KernelRow* rows, size_t count) {
  alignas(64) float codes[kTileColumns * kTileRows];
  alignas(64) float scales[2 * kTileRows];
  for (size_t j = 0; j < count; ++j) std::fill_n(rows[j].out, kTileRows, 0.0f);
  for (size_t g = 0; g < matrix.groups(); ++g) {
    DecodeTile(matrix, block, g, codes, scales);
    for (size_t j = 0; j < count; ++j)
      AddGroup(matrix, rows[j].bf16 + g * kTileColumns,
               rows[j].group_scales != nullptr ? rows[j].group_scales[g] : 1, codes, scales,
               rows[j].out);
  }
}

void RunSparsePortable(const TileMatrix& matrix, size_t block, const SparseRow& row) {
  alignas(64) float codes[kTileColumns * kTileRows];
  alignas(64) float scales[2 * kTileRows];
  std::fill_n(row.out, kTileRows, 0.0f);
  for (size_t i = 0; i < row.count; ++i) {
    DecodeTile(matrix, block, row.groups[i], codes, scales);
    AddGroup(matrix, row.bf16 + i * kTileColumns, 1, codes, scales, row.out);
  }
}

void RunBlockPlain(const TileMatrix& matrix, size_t block, const float* row, float* out) {
  alignas(64) float codes[kTileColumns * kTileRows];
  alignas(64) float scales[2 * kTileRows];
  std::fill_n(out, kTileRows, 0.0f);
  for (size_t g = 0; g < matrix.groups(); ++g) {
    DecodeTile(matrix, block, g, codes, scales);
    for (size_t k = 0; k < kTileColumns; ++k)
      for (size_t r = 0; r < kTileRows; ++r)
        out[r] += row[g * kTileColumns + k] *
                  (codes[k * kTileRows + r] * scales[k / kHalf * kTileRows + r]);
  }
}

}  // namespace blockscale::cpu
