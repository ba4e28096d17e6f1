// One expert's down projection of a case, made from a text and packed into tiles.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "backends/cpu/tile.h"
#include "verify/moe_case.h"

namespace blockscale::cpu {

struct Packed {
  MatrixRows matrix;
  std::unique_ptr<LayerWeights> owner;
  HugeBuffer bytes;  // kernels want tiles at whole lines
  TileMatrix tiles;

  explicit Packed(const char* text) {
    const auto c = ParseMoeCase(text);
    EXPECT_TRUE(c.ok()) << c.status().message();
    owner = MakeCaseWeights(c->spec, 7);
    matrix = owner->Expert(0)->down;
    tiles = {.format = TileFormatOf(matrix.spec), .rows = matrix.rows, .columns = matrix.columns};
    tiles.stride = tiles.block_bytes();
    bytes = *HugeBuffer::Make(tiles.blocks() * tiles.stride);
    for (size_t b = 0; b < tiles.blocks(); ++b)
      PackBlock(matrix, tiles.format, b, bytes.data() + b * tiles.stride);
    tiles.tiles = bytes.data();
  }
};

}  // namespace blockscale::cpu
