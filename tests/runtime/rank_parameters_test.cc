#include "runtime/rank_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sample_model.h"
#include "support/temp_folder.h"

namespace blockscale {
namespace {

using ::testing::ElementsAre;
using namespace testing;  // NOLINT

const MethodChoice kPlain{.name = "plain"};
const MethodChoice kInt8{.name = "int8", .weight = DType::kI8, .scales = ScaleGrid::kPerRow};

class RankParametersTest : public ::testing::Test {
 protected:
  std::vector<std::string> Of(const std::string& module, const MethodChoice& method, uint64_t tp) {
    WriteCheckpoint(folder_ / "m", {{"m.safetensors", tensors_}}, ConfigText("null"));
    const auto checkpoint = Checkpoint::Open(PosixFileSystem(), folder_ / "m");
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    for (const RuntimeModule& candidate : BuildModuleTree(*checkpoint))
      if (candidate.name == module) return RankParameters(*checkpoint, candidate, method, tp);
    return {"no such module"};
  }
  Tensors tensors_ = GoodTensors();
  TempFolder folder_;
};

TEST_F(RankParametersTest, KeyValueHeadsAreRepeatedWhenThereAreFewerThanRanks) {
  const std::string qkv = "model.layers.0.self_attn.qkv_proj";
  EXPECT_THAT(Of(qkv, kInt8, 1), ElementsAre("weight int8 [24, 8]", "weight_scale f32 [24, 1]"));
  EXPECT_THAT(Of(qkv, kInt8, 2), ElementsAre("weight int8 [12, 8]", "weight_scale f32 [12, 1]"));
  // Four ranks, two key-value heads of 4 rows: each rank has 2 rows of q and whole heads of k, v.
  EXPECT_THAT(Of(qkv, kInt8, 4), ElementsAre("weight int8 [10, 8]", "weight_scale f32 [10, 1]"));
}

TEST_F(RankParametersTest, RowScalesStayWholeWhereColumnsAreSplit) {
  EXPECT_THAT(Of("model.layers.0.self_attn.o_proj", kInt8, 4),
              ElementsAre("weight int8 [8, 2]", "weight_scale f32 [8, 1]"));
  EXPECT_THAT(Of("model.layers.0.mlp.experts", kInt8, 4),
              ElementsAre("w13_weight int8 [2, 2, 8]", "w13_weight_scale f32 [2, 2, 1]",
                          "w2_weight int8 [2, 8, 1]", "w2_weight_scale f32 [2, 8, 1]"));
}

TEST_F(RankParametersTest, GatesAreWholeAndTheVocabularyIsPadded) {
  EXPECT_THAT(Of("model.layers.0.mlp.gate", kPlain, 4), ElementsAre("weight f32 [2, 8]"));
  EXPECT_THAT(Of("lm_head", kPlain, 4), ElementsAre("weight bf16 [16, 8]"));
  EXPECT_EQ(PaddedVocabulary(200064), 200064u);
  EXPECT_EQ(PaddedVocabulary(1), 64u);
  EXPECT_EQ(PaddedVocabulary(65), 128u);
}

TEST_F(RankParametersTest, OtherGridsOfScales) {
  MethodChoice block{
      .name = "fp8", .weight = DType::kF8E4M3, .scales = ScaleGrid::kPerBlock, .block = {5, 3}};
  EXPECT_THAT(Of("model.layers.0.self_attn.o_proj", block, 1),
              ElementsAre("weight f8_e4m3 [8, 8]", "weight_scale f32 [2, 3]"));
  block.scales = ScaleGrid::kPerTensor;
  EXPECT_THAT(Of("model.layers.0.self_attn.o_proj", block, 1),
              ElementsAre("weight f8_e4m3 [8, 8]", "weight_scale f32 [1]"));
}

TEST_F(RankParametersTest, TheTypeIsTheParametersNotTheTensors) {
  EXPECT_THAT(Of("lm_head", kInt8, 1),
              ElementsAre("weight int8 [64, 8]", "weight_scale f32 [64, 1]"));
  EXPECT_THAT(Of("model.layers.0.self_attn.o_proj", kPlain, 1), ElementsAre("weight bf16 [8, 8]"));
  const MethodChoice unknown{.name = "unknown", .judged = false};
  EXPECT_THAT(Of("model.layers.0.self_attn.o_proj", unknown, 1), ElementsAre("weight int8 [8, 8]"));
}

}  // namespace
}  // namespace blockscale
