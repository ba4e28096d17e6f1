// A layer found by the names and shapes of its tensors; what does not fit together is named.

#include "model/checkpoint_layer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/temp_folder.h"
#include "support/tensor_file.h"

namespace blockscale {
namespace {

using testing::TestTensor;

constexpr uint64_t kHidden = 32, kInner = 64;

std::string Filled(uint64_t count, float value) {
  return testing::Bf16Bytes(std::vector<uint16_t>(count, BF16::Encode(value)));
}

TestTensor Matrix(const std::string& name, uint64_t rows, uint64_t columns, float value) {
  return {name, "BF16", {rows, columns}, Filled(rows * columns, value)};
}

// Plain BF16 experts; the value of each matrix says which it is.
std::vector<TestTensor> Experts(const std::string& prefix, int count) {
  std::vector<TestTensor> tensors;
  for (int e = 0; e < count; ++e) {
    const std::string expert = prefix + std::to_string(e);
    tensors.push_back(Matrix(expert + ".gate_proj.weight", kInner, kHidden, 10.0f * e + 1));
    tensors.push_back(Matrix(expert + ".up_proj.weight", kInner, kHidden, 10.0f * e + 2));
    tensors.push_back(Matrix(expert + ".down_proj.weight", kHidden, kInner, 10.0f * e + 3));
  }
  return tensors;
}

constexpr char kConfig[] =
    R"({"model_type": "qwen3_moe", "num_experts_per_tok": 2, "hidden_act": "silu"})";

// The opened checkpoint must outlive what FindLayer gives.
struct Found {
  testing::TempFolder folder;
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<CheckpointLayer> layer;
  std::string error;

  Found(const std::vector<TestTensor>& tensors, const std::string& config, uint64_t number) {
    testing::WriteCheckpoint(folder.path(), {{"model-00001-of-00001.safetensors", tensors}},
                             config);
    auto opened = Checkpoint::Open(PosixFileSystem(), folder.path().string());
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    checkpoint = std::make_unique<Checkpoint>(std::move(*opened));
    auto found = FindLayer(*checkpoint, number);
    error = found.status().message();
    if (found.ok()) layer = std::make_unique<CheckpointLayer>(std::move(*found));
  }
};

TEST(CheckpointLayer, SizesFromTensorsSlotsAndActivationFromTheConfig) {
  const Found found(Experts("model.layers.3.mlp.experts.", 4), kConfig, 3);
  ASSERT_TRUE(found.layer) << found.error;
  const MoeSpec& spec = found.layer->spec;
  EXPECT_EQ(spec.experts, 4u);
  EXPECT_EQ(spec.top_k, 2u);
  EXPECT_EQ(spec.hidden, kHidden);
  EXPECT_EQ(spec.intermediate, kInner);
  EXPECT_EQ(spec.weights, Scheme::kBF16);
  EXPECT_EQ(spec.inputs, RowScheme::kBf16);
  EXPECT_EQ(spec.activation, SwiGlu());
}

TEST(CheckpointLayer, WeightsAreThoseOfTheExpertsAskedFor) {
  const Found found(Experts("model.layers.0.mlp.experts.", 4), kConfig, 0);
  ASSERT_TRUE(found.layer) << found.error;
  const auto weights = MakeCheckpointWeights(*found.checkpoint, *found.layer, {3, 1});
  const std::pair<uint32_t, float> places[] = {{0, 30}, {1, 10}};
  for (const auto& [local, base] : places) {
    const auto expert = weights->Expert(local);
    ASSERT_TRUE(expert.ok()) << expert.status().message();
    std::vector<float> row(kInner);
    DecodeMatrixRow(expert->gate, 5, row.data());
    EXPECT_EQ(row[0], base + 1);
    DecodeMatrixRow(expert->up, kInner - 1, row.data());
    EXPECT_EQ(row[kHidden - 1], base + 2);
    DecodeMatrixRow(expert->down, 0, row.data());
    EXPECT_EQ(row[kInner - 1], base + 3);
  }
}

TEST(CheckpointLayer, OtherNamesAreNoExperts) {
  auto tensors = Experts("language_model.model.layers.1.block_sparse_moe.experts.", 2);
  tensors.push_back(
      Matrix("language_model.model.layers.1.block_sparse_moe.shared_experts.gate_proj."
             "weight",
             8, kHidden, 9));
  tensors.push_back(Matrix("language_model.model.layers.1.self_attn.q_proj.weight", 8, kHidden, 9));
  const Found found(tensors, kConfig, 1);
  ASSERT_TRUE(found.layer) << found.error;
  EXPECT_EQ(found.layer->spec.experts, 2u);
}

TEST(CheckpointLayer, TheFirstLayerWithExperts) {
  auto tensors = Experts("model.layers.12.mlp.experts.", 2);
  for (TestTensor& tensor : Experts("model.layers.3.mlp.experts.", 2))
    tensors.push_back(std::move(tensor));
  tensors.push_back(Matrix("model.layers.0.mlp.gate_proj.weight", kInner, kHidden, 1));
  const Found found(tensors, kConfig, 12);
  ASSERT_TRUE(found.layer) << found.error;
  EXPECT_EQ(*FirstMoeLayer(*found.checkpoint), 3u);
  const Found none({Matrix("model.norm.weight", 4, 4, 1)}, kConfig, 0);
  EXPECT_EQ(FirstMoeLayer(*none.checkpoint).status().message(),
            "the checkpoint has no layer with experts");
}

// What a spec of each scheme is usually multiplied with; a family's own tests cover the others.
TEST(CheckpointLayer, BothNamesOfProjections) {
  std::vector<TestTensor> tensors;
  for (int e = 0; e < 2; ++e) {
    const std::string expert = "layers.0.ffn.experts." + std::to_string(e);
    tensors.push_back(Matrix(expert + ".w1.weight", kInner, kHidden, 1));
    tensors.push_back(Matrix(expert + ".w3.weight", kInner, kHidden, 2));
    tensors.push_back(Matrix(expert + ".w2.weight", kHidden, kInner, 3));
  }
  const Found found(tensors, kConfig, 0);
  ASSERT_TRUE(found.layer) << found.error;
  EXPECT_EQ(found.layer->experts[1].up.module, "layers.0.ffn.experts.1.w3");
}

TEST(CheckpointLayer, WhatDoesNotFitIsNamed) {
  const std::string prefix = "model.layers.2.mlp.experts.";
  EXPECT_EQ(Found(Experts(prefix, 2), kConfig, 0).error,
            "layer 0 has no experts; layers 2 to 2 have");
  EXPECT_EQ(Found({Matrix("model.norm.weight", 4, 4, 1)}, kConfig, 0).error,
            "the checkpoint has no layer with experts");
  auto tensors = Experts(prefix, 2);
  tensors.erase(tensors.begin() + 4);
  EXPECT_EQ(Found(tensors, kConfig, 2).error, "layer 2 expert 1 has no up projection");
  tensors = Experts(prefix, 3);
  tensors.erase(tensors.begin() + 3, tensors.begin() + 6);
  EXPECT_EQ(Found(tensors, kConfig, 2).error, "layer 2 has expert 2 but no expert 1");
  tensors = Experts(prefix, 2);
  tensors[4] = Matrix(prefix + "1.up_proj.weight", kInner, 2 * kHidden, 1);
  EXPECT_EQ(
      Found(tensors, kConfig, 2).error,
      "model.layers.2.mlp.experts.1.up_proj: 64 x 64 of bf16, but expert 0 has 64 x 32 of bf16: "
      "experts of one layer must be alike");
  EXPECT_EQ(
      Found(Experts(prefix, 2), R"({"hidden_act": "silu"})", 2).error,
      "config.json: no num_experts_per_tok: how many experts a token takes is not in the tensors");
  EXPECT_EQ(
      Found(Experts(prefix, 2), R"({"num_experts_per_tok": 2, "hidden_act": "tanh"})", 2).error,
      "config.json: hidden_act is 'tanh'; silu, situ, gelu and gelu_pytorch_tanh are known");
  EXPECT_EQ(
      Found(Experts(prefix, 2), R"({"num_experts_per_tok": 3, "hidden_act": "silu"})", 2).error,
      "top-k is 3; it must be no more than the 2 experts and 32");
}

}  // namespace
}  // namespace blockscale
