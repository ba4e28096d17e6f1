// How the CPU backend stores a matrix: tiles of 64 rows x 32 columns, the tiles of 64 rows one
// after the other along the columns, so that a product reads memory strictly forward.
//
// A tile is lines of 64 bytes, one for 16 rows ("quarter" q = 0..3) and some columns; a line is 32
// words of 16 bits, word 2 * r + h being row 16 * q + r of its quarter:
//
//   4 bits   16 lines, line 4 * c + q: nibble i of word (r, h) is column 8 * c + 2 * i + h
//   8 bits   32 lines, line 4 * c + q: byte  i of word (r, h) is column 4 * c + 2 * i + h
//   16 bits  64 lines, line 4 * c + q: word (r, h) is column 2 * c + h
//
// so that a shift or a byte's half gives the pair of columns that VDPBF16PS multiplies. The tile's
// scales follow its codes: E8M0 64 bytes; UE4M3 64 bytes for columns 0..15 and 64 for 16..31; BF16
// (int4-group) 64 words. One scale a row, and fp8-block's, which span tiles, stand apart.
// Codes beyond the matrix are 0 and scales 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/cpu/huge_buffer.h"
#include "moe/layer_weights.h"

namespace blockscale::cpu {

inline constexpr size_t kTileRows = 64;
inline constexpr size_t kTileColumns = 32;
inline constexpr size_t kLine = 64;
inline constexpr size_t kQuarter = 16;  // rows of a line

// What stands behind a tile's codes.
enum class TileScale { kNone, kE8M0, kUE4M3, kBF16 };

struct TileFormat {
  Format element = Format::kBF16;
  TileScale scale = TileScale::kNone;

  size_t code_bytes() const {
    return kTileRows * kTileColumns * static_cast<size_t>(BitsOf(element)) / 8;
  }
  size_t scale_bytes() const {
    return scale == TileScale::kNone ? 0 : scale == TileScale::kE8M0 ? kLine : 2 * kLine;
  }
  size_t bytes() const { return code_bytes() + scale_bytes(); }
  bool operator==(const TileFormat&) const = default;
};

TileFormat TileFormatOf(const QuantSpec& spec);

// A matrix in tiles. `blocks` of 64 rows, `groups` of 32 columns.
struct TileMatrix {
  TileFormat format;
  size_t rows = 0;
  size_t columns = 0;
  const std::byte* tiles = nullptr;  // not owned; at a multiple of 64
  size_t stride = 0;                 // bytes from one block of 64 rows to the next
  // One scale a row (also the global scale of NVFP4), [blocks * 64], or null.
  const float* row_scales = nullptr;
  // fp8-block: [blocks][ceil(columns / 128)], or null.
  const float* block_scales = nullptr;
  const float* bias = nullptr;  // [rows], or null

  size_t blocks() const { return (rows + kTileRows - 1) / kTileRows; }
  size_t groups() const { return columns / kTileColumns; }
  size_t block_bytes() const { return groups() * format.bytes(); }
  const std::byte* block(size_t b) const { return tiles + b * stride; }
};

// Packs 64 rows of `matrix` from row 64 * b on into `tiles` (block_bytes of them, zeroed).
void PackBlock(const MatrixRows& matrix, const TileFormat& format, size_t b, std::byte* tiles);

// One code of a packed block, as stored (a nibble in the low bits): what PackBlock put there.
uint32_t CodeAt(const TileFormat& format, const std::byte* block, size_t row, size_t column);

}  // namespace blockscale::cpu
