#include "model/families.h"

#include <gtest/gtest.h>

#include "model/minimax_m2.h"

namespace blockscale {
namespace {

TEST(Families, AreFoundByTypeThenByArchitecture) {
  const auto family = [](const std::string& json) { return FamilyOf(*ParseHfConfig(json, "f")); };
  EXPECT_EQ(family(R"({"model_type":"minimax_m2"})"), Family::kMiniMaxM2);
  EXPECT_EQ(family(R"({"architectures":["X","MiniMaxM2ForCausalLM"]})"), Family::kMiniMaxM2);
  EXPECT_EQ(family(R"({"model_type":"llama"})"), std::nullopt);
  EXPECT_EQ(family("{}"), std::nullopt);
}

// docs/formats.md's table, tensor by tensor kind.
TEST(MiniMaxM2, HasTheTensorsOfM27) {
  const std::vector<TensorInfo> tensors = MiniMaxM2Tensors(MiniMaxM27Size());
  EXPECT_EQ(tensors.size(), 96'103u);
  uint64_t bytes = 0, fp8 = 0;
  for (const TensorInfo& tensor : tensors) {
    bytes += TensorBytes(tensor.name, tensor.dtype, tensor.shape).value();
    fp8 += tensor.dtype == DType::kF8E4M3;
  }
  EXPECT_EQ(fp8, 47'864u);
  EXPECT_EQ(bytes, 230'121'630'720u);
  const auto shape = [&](const std::string& name) {
    for (const TensorInfo& tensor : tensors)
      if (tensor.name == name)
        return std::string(NameOf(tensor.dtype)) + " " + ShapeText(tensor.shape);
    return std::string("missing");
  };
  const std::string layer = "model.layers.61.";
  EXPECT_EQ(shape("model.embed_tokens.weight"), "BF16 [200064, 3072]");
  EXPECT_EQ(shape(layer + "block_sparse_moe.experts.255.w1.weight"), "F8_E4M3 [1536, 3072]");
  EXPECT_EQ(shape(layer + "block_sparse_moe.experts.255.w2.weight"), "F8_E4M3 [3072, 1536]");
  EXPECT_EQ(shape(layer + "block_sparse_moe.experts.255.w2.weight_scale_inv"), "F32 [24, 12]");
  EXPECT_EQ(shape(layer + "block_sparse_moe.gate.weight"), "F32 [256, 3072]");
  EXPECT_EQ(shape(layer + "block_sparse_moe.e_score_correction_bias"), "F32 [256]");
  EXPECT_EQ(shape(layer + "self_attn.q_proj.weight"), "F8_E4M3 [6144, 3072]");
  EXPECT_EQ(shape(layer + "self_attn.k_proj.weight_scale_inv"), "F32 [8, 24]");
  EXPECT_EQ(shape(layer + "self_attn.k_norm.weight"), "BF16 [1024]");
}

TEST(MiniMaxM2, ConfigBelongsToTheFamily) {
  const auto config = ParseHfConfig(MiniMaxM2Config(MiniMaxM27Size()).dump(), "f");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(FamilyOf(*config), Family::kMiniMaxM2);
  EXPECT_EQ(config->Number("num_local_experts"), 256u);
  EXPECT_EQ(config->quantization->block_size->rows, 128u);
}

}  // namespace
}  // namespace blockscale
