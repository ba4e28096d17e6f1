// Prepared weights: every matrix of every expert decodes from its tiles to what it was.

#include "backends/cpu/packed_layer.h"

#include <gtest/gtest.h>

#include "backends/cpu/kernel.h"
#include "verify/moe_case.h"

namespace blockscale::cpu {
namespace {

MoeSpec Spec(const std::string& text) {
  const auto spec = ParseMoeSpec(text);
  EXPECT_TRUE(spec.ok()) << spec.status().message();
  return *spec;
}

void ExpectSame(const MatrixRows& matrix, const TileMatrix& tiles, const std::string& where) {
  ASSERT_EQ(tiles.rows, matrix.rows) << where;
  ASSERT_EQ(tiles.columns, matrix.columns) << where;
  std::vector<float> row(matrix.columns), codes(kTileColumns * kTileRows), scales(2 * kTileRows);
  for (uint64_t r = 0; r < matrix.rows; ++r) {
    DecodeMatrixRow(matrix, r, row.data());
    const size_t block = r / kTileRows, in_block = r % kTileRows;
    for (size_t g = 0; g < tiles.groups(); ++g) {
      DecodeTile(tiles, block, g, codes.data(), scales.data());
      for (size_t k = 0; k < kTileColumns; ++k) {
        float value = codes[k * kTileRows + in_block];
        value *= scales[k / 16 * kTileRows + in_block];
        if (tiles.row_scales != nullptr) value *= tiles.row_scales[r];
        // NVFP4's two scales are applied one after the other here.
        ASSERT_FLOAT_EQ(value, row[g * kTileColumns + k]) << where << " row " << r;
      }
    }
    if (matrix.bias != nullptr) {
      ASSERT_EQ(tiles.bias[r], matrix.bias_of(r));
    }
  }
}

TEST(PackedLayer, EveryMatrixOfEverySchemeAndOrder) {
  for (const char* text :
       {"weights=mxfp4", "weights=mxfp8", "weights=nvfp4", "weights=bf16", "weights=int8-channel",
        "weights=fp8-channel", "weights=fp8-tensor", "weights=int4-group",
        "weights=int4-group,weight-group=32", "weights=fp8-block", "weights=mxfp4,order=gate-up",
        "weights=mxfp4,order=interleaved,biases=yes", "weights=mxfp4,activation=relu2",
        "weights=mxfp4,hidden=96,intermediate=160"}) {
    const MoeSpec spec = Spec(std::string("experts=3,inputs=bf16,") + text);
    const auto weights = MakeCaseWeights(spec, 5);
    const auto packed = PackedLayer::Make(spec, *weights);
    ASSERT_TRUE(packed.ok()) << packed.status().message();
    for (uint32_t e = 0; e < 3; ++e) {
      const auto expert = weights->Expert(e);
      ASSERT_TRUE(expert.ok());
      ExpectSame(expert->gate, packed->expert(e).gate, std::string(text) + " gate");
      if (spec.activation.gated()) ExpectSame(expert->up, packed->expert(e).up, text);
      ExpectSame(expert->down, packed->expert(e).down, std::string(text) + " down");
    }
  }
}

TEST(PackedLayer, BlocksThatNoTileHoldsAreRefused) {
  const MoeSpec spec = Spec("experts=1,top-k=1,weights=fp8-block,inputs=bf16");
  class Odd final : public LayerWeights {
   public:
    explicit Odd(std::unique_ptr<LayerWeights> inner) : inner_(std::move(inner)) {}
    Result<ExpertWeights> Expert(uint32_t local) const override {
      auto expert = inner_->Expert(local);
      if (expert.ok()) expert->gate.spec.block_columns = 64;
      return expert;
    }
    std::unique_ptr<LayerWeights> inner_;
  };
  const auto packed = PackedLayer::Make(spec, Odd(MakeCaseWeights(spec, 1)));
  ASSERT_FALSE(packed.ok());
  EXPECT_NE(packed.status().message().find("convert to mxfp8"), std::string::npos)
      << packed.status().message();
}

}  // namespace
}  // namespace blockscale::cpu
