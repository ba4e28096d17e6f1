#include "backends/cpu/tile.h"

#include <cstring>

namespace blockscale::cpu {
namespace {

// Where a code stands: the word of its tile and the bit in that word.
struct Place {
  size_t word = 0;
  size_t bit = 0;
};

Place PlaceOf(size_t bits, size_t row, size_t column) {
  const size_t quarter = row / kQuarter, r = row % kQuarter;
  const size_t per_word = 16 / bits;     // codes in a word
  const size_t per_line = 2 * per_word;  // columns of a line
  const size_t c = column / per_line, rest = column % per_line;
  return {((4 * c + quarter) * kLine) / 2 + 2 * r + rest % 2, rest / 2 * bits};
}

uint32_t StoredCode(const MatrixRows& matrix, const std::byte* row, size_t column) {
  switch (BitsOf(matrix.spec.element)) {
    case 4:
      return (static_cast<uint32_t>(row[column / 2]) >> (column % 2 * 4)) & 15;
    case 8:
      return static_cast<uint32_t>(row[column]);
    default:
      return static_cast<uint32_t>(row[2 * column]) | static_cast<uint32_t>(row[2 * column + 1])
                                                          << 8;
  }
}

void PackScales(const MatrixRows& matrix, const TileFormat& format, size_t r, size_t b_row,
                std::byte* tiles) {
  const std::byte* scales = matrix.scale_row(r);
  const size_t groups = matrix.columns / kTileColumns;
  for (size_t g = 0; g < groups; ++g) {
    std::byte* at = tiles + g * format.bytes() + format.code_bytes();
    if (format.scale == TileScale::kE8M0) {
      at[b_row] = scales[g];
    } else if (format.scale == TileScale::kUE4M3) {
      at[b_row] = scales[2 * g];
      at[kLine + b_row] = scales[2 * g + 1];
    } else if (format.scale == TileScale::kBF16) {
      const size_t group = g * kTileColumns / matrix.spec.block_columns;
      std::memcpy(at + 2 * b_row, scales + 2 * group, 2);
    }
  }
}

}  // namespace

TileFormat TileFormatOf(const QuantSpec& spec) {
  TileFormat format{.element = spec.element};
  if (spec.scheme == Scheme::kMxfp4 || spec.scheme == Scheme::kMxfp8)
    format.scale = TileScale::kE8M0;
  if (spec.scheme == Scheme::kNvfp4) format.scale = TileScale::kUE4M3;
  if (spec.scheme == Scheme::kInt4Group) format.scale = TileScale::kBF16;
  return format;
}

void PackBlock(const MatrixRows& matrix, const TileFormat& format, size_t b, std::byte* tiles) {
  const size_t bits = static_cast<size_t>(BitsOf(format.element));
  const size_t last = std::min<size_t>(kTileRows, matrix.rows - b * kTileRows);
  for (size_t row = 0; row < last; ++row) {
    const size_t r = b * kTileRows + row;
    const std::byte* codes = matrix.code_row(r);
    for (size_t column = 0; column < matrix.columns; ++column) {
      const Place place = PlaceOf(bits, row, column % kTileColumns);
      std::byte* at = tiles + column / kTileColumns * format.bytes() + 2 * place.word;
      const uint32_t code = StoredCode(matrix, codes, column) << place.bit;
      at[0] |= static_cast<std::byte>(code & 255);
      at[1] |= static_cast<std::byte>(code >> 8);
    }
    if (format.scale != TileScale::kNone) PackScales(matrix, format, r, row, tiles);
  }
}

uint32_t CodeAt(const TileFormat& format, const std::byte* block, size_t row, size_t column) {
  const size_t bits = static_cast<size_t>(BitsOf(format.element));
  const Place place = PlaceOf(bits, row, column % kTileColumns);
  uint16_t word = 0;
  std::memcpy(&word, block + column / kTileColumns * format.bytes() + 2 * place.word, 2);
  return (word >> place.bit) & ((1u << bits) - 1);
}

}  // namespace blockscale::cpu
