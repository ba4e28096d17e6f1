// Every family: its checkpoint is recognised, read without a finding, and classed by name.
#include "model/family_tensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "checkpoint/checkpoint.h"
#include "checkpoint/stored_rows.h"
#include "model/inspect.h"
#include "model/synth.h"
#include "model/tensor_class.h"
#include "numeric/block_quant.h"
#include "support/temp_folder.h"

namespace blockscale {
namespace {

SynthOptions Small(Family family, const std::string& output) {
  SynthOptions options{.family = family, .output = output};
  options.size = {.layers = 2, .experts = 3, .hidden = 256, .intermediate = 128, .vocab = 64};
  return options;
}

struct Expected {
  std::string dialect;
  std::map<Scheme, size_t> matrices;  // quantised ones, stacked experts one by one
};

// Layers: experts in both of minimax-m2, deepseek-v4, gpt-oss and qwen3-moe; a dense first one in
// the others.
Expected ExpectedOf(Family family) {
  switch (family) {
    case Family::kMiniMaxM2:
    case Family::kQwen3Moe:
      return {"deepseek", {{Scheme::kFp8Block, 2 * (3 * 3 + 4)}}};
    case Family::kKimiK3:
      return {"compressed-tensors", {{Scheme::kMxfp4, 3 * 3}}};
    case Family::kKimiK2:
      return {"compressed-tensors", {{Scheme::kInt4Group, 3 * 3}}};
    case Family::kDeepSeekV3:
      return {"deepseek", {{Scheme::kFp8Block, (5 + 3) + (5 + 3 * 3 + 3)}}};
    case Family::kDeepSeekV4:
      return {"deepseek-v4", {{Scheme::kMxfp4, 2 * 3 * 3}, {Scheme::kFp8Block, 2 * (4 + 3)}}};
    case Family::kGptOss:
      return {"gpt-oss", {{Scheme::kMxfp4, 2 * 3 * 3}}};
    case Family::kGlmMoe:
      return {"deepseek", {{Scheme::kFp8Block, (4 + 3) + (4 + 3 * 3 + 3)}}};
  }
  return {};
}

TEST(FamilyTensors, AreRecognisedAndReadWithoutAFinding) {
  for (const Family family : AllFamily()) {
    testing::TempFolder folder;
    const auto made = SynthesizeCheckpoint(PosixFileSystem(), Small(family, folder / "a"));
    ASSERT_TRUE(made.ok()) << NameOf(family) << ": " << made.status().message();
    const auto inspected = InspectCheckpoint(PosixFileSystem(), folder / "a", true);
    ASSERT_TRUE(inspected.ok());
    EXPECT_EQ(inspected->family, family) << NameOf(family);
    for (const Finding& finding : inspected->findings) {
      // The real MiniMax-M2 has shard names that lie.
      EXPECT_TRUE(family == Family::kMiniMaxM2 && finding.kind == "shard-count")
          << NameOf(family) << ": " << finding.message;
    }
    const Expected expected = ExpectedOf(family);
    size_t total = 0;
    for (const auto& [scheme, count] : expected.matrices) total += count;
    EXPECT_EQ(inspected->dialects, (std::map<std::string, uint64_t>{{expected.dialect, total}}))
        << NameOf(family);
  }
}

TEST(FamilyTensors, HoldTheSchemesOfTheirFamilies) {
  for (const Family family : AllFamily()) {
    testing::TempFolder folder;
    ASSERT_TRUE(SynthesizeCheckpoint(PosixFileSystem(), Small(family, folder / "a")).ok());
    const auto checkpoint = Checkpoint::Open(PosixFileSystem(), folder / "a");
    const auto stored = FindStoredMatrices(*checkpoint);
    ASSERT_TRUE(stored.ok()) << stored.status().message();
    std::map<Scheme, size_t> found;
    for (const StoredMatrix& matrix : stored->matrices)
      if (matrix.spec.has_scales()) ++found[matrix.spec.scheme];
    EXPECT_EQ(found, ExpectedOf(family).matrices) << NameOf(family);
  }
}

// Numbers of the size that weights have, in every block.
TEST(FamilyTensors, WeightsLookLikeWeights) {
  for (const Family family : AllFamily()) {
    testing::TempFolder folder;
    ASSERT_TRUE(SynthesizeCheckpoint(PosixFileSystem(), Small(family, folder / "a")).ok());
    const auto checkpoint = Checkpoint::Open(PosixFileSystem(), folder / "a");
    const auto stored = FindStoredMatrices(*checkpoint);
    for (const StoredMatrix& matrix : stored->matrices) {
      if (!matrix.spec.has_scales()) continue;
      StoredRows rows;
      ASSERT_TRUE(ReadStoredRows(*checkpoint, matrix, {}, 0, matrix.rows, &rows).ok());
      std::vector<float> values(matrix.rows * matrix.columns);
      DecodeRows(
          {matrix.spec, rows.codes.data(), matrix.rows, matrix.columns, 0, rows.effective.data()},
          values.data());
      double squares = 0;
      for (const float value : values) squares += static_cast<double>(value) * value;
      const double size = std::sqrt(squares / static_cast<double>(values.size()));
      EXPECT_GT(size, 1e-4) << NameOf(family) << " " << matrix.module;
      EXPECT_LT(size, 1) << NameOf(family) << " " << matrix.module;
    }
  }
}

TEST(FamilyTensors, ClassesFollowFromNames) {
  using C = TensorClass;
  for (const auto& [name, expected] : std::vector<std::pair<std::string, TensorClass>>{
           {"language_model.model.layers.1.block_sparse_moe.experts.3.w1.weight_packed",
            C::kExperts},
           {"language_model.model.layers.1.block_sparse_moe.gate.weight", C::kRouter},
           {"language_model.model.layers.1.block_sparse_moe.gate.e_score_correction_bias",
            C::kRouter},
           {"language_model.model.layers.1.block_sparse_moe.routed_expert_down_proj.weight",
            C::kOther},
           {"language_model.lm_head.weight", C::kEmbedding},
           {"model.layers.3.self_attn.kv_a_proj_with_mqa.weight", C::kAttention},
           {"model.layers.0.mlp.gate_proj.weight", C::kOther},
           {"model.layers.1.mlp.experts.0.gate_proj.weight", C::kExperts},
           {"layers.0.attn.wq_a.scale", C::kAttention},
           {"layers.0.ffn.experts.2.w3.weight", C::kExperts},
           {"layers.0.attn_norm.weight", C::kNorm},
           {"embed.weight", C::kEmbedding},
           {"head.weight", C::kEmbedding},
           {"model.layers.0.mlp.experts.gate_up_proj_blocks", C::kExperts},
           {"model.layers.0.mlp.experts.down_proj_bias", C::kExperts},
           {"model.layers.0.mlp.router.weight", C::kRouter},
           {"model.layers.0.self_attn.sinks", C::kAttention}})
    EXPECT_EQ(ClassOf(name), expected) << name << " is " << NameOf(ClassOf(name));
}

TEST(FamilyTensors, WidthsThatGroupsDoNotDivideAreRefused) {
  testing::TempFolder folder;
  SynthOptions options = Small(Family::kKimiK2, folder / "a");
  options.size.intermediate = 100;
  const auto made = SynthesizeCheckpoint(PosixFileSystem(), options);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.status().message().find("--intermediate 100 is not a multiple of 32"),
            std::string::npos);
}

// Kimi-K3 as it is: every expert has the bytes that its card says.
TEST(FamilyTensors, KimiK3HasItsRealShapes) {
  const ModelSize size{.layers = 2, .experts = 896, .hidden = 7168, .intermediate = 3072};
  uint64_t codes = 0, scales = 0;
  for (const TensorInfo& tensor : KimiK3Tensors(size).tensors) {
    if (tensor.name.find("experts.895.w") == std::string::npos) continue;
    const uint64_t bytes = TensorBytes(tensor.name, tensor.dtype, tensor.shape).value();
    (tensor.name.ends_with("_packed") ? codes : scales) += bytes;
  }
  EXPECT_EQ(codes, 16'515'072u);
  EXPECT_EQ(scales, 1'032'192u);
}

}  // namespace
}  // namespace blockscale
