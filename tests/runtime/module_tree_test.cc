#include "runtime/module_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temp_folder.h"
#include "support/tensor_file.h"

namespace blockscale {
namespace {

using testing::TestTensor;

std::map<std::string, RuntimeModule> TreeOf(const std::vector<std::string>& modules,
                                            const std::string& model_type) {
  testing::TempFolder folder;
  std::vector<TestTensor> tensors;
  for (const std::string& module : modules)
    tensors.push_back({module + ".weight", "I8", {1, 1}, "x"});
  tensors.push_back({"model.norm.weight", "BF16", {1}, "xx"});
  testing::WriteCheckpoint(folder.path(), {{"m.safetensors", tensors}},
                           R"({"model_type":")" + model_type + "\"}");
  const auto checkpoint = Checkpoint::Open(PosixFileSystem(), folder.path());
  EXPECT_TRUE(checkpoint.ok());
  std::map<std::string, RuntimeModule> tree;
  for (RuntimeModule& module : BuildModuleTree(*checkpoint)) tree[module.name] = std::move(module);
  return tree;
}

const std::vector<std::string> kModules = {"model.embed_tokens",
                                           "lm_head",
                                           "model.layers.0.self_attn.q_proj",
                                           "model.layers.0.self_attn.k_proj",
                                           "model.layers.0.self_attn.v_proj",
                                           "model.layers.0.self_attn.o_proj",
                                           "model.layers.0.block_sparse_moe.gate",
                                           "model.layers.0.block_sparse_moe.experts.0.w1",
                                           "model.layers.0.block_sparse_moe.experts.0.w2",
                                           "model.layers.0.block_sparse_moe.experts.1.w1",
                                           "model.layers.1.mlp.gate_proj",
                                           "model.layers.1.mlp.up_proj",
                                           "model.layers.1.mlp.down_proj"};

TEST(ModuleTree, HasTheRuntimesNamesAndClasses) {
  const auto tree = TreeOf(kModules, "minimax_m2");
  ASSERT_EQ(tree.size(), 8u);
  const RuntimeModule& experts = tree.at("model.layers.0.mlp.experts");
  EXPECT_EQ(experts.kind, ModuleKind::kExperts);
  EXPECT_EQ(experts.class_name, "RoutedExperts");
  EXPECT_EQ(experts.on_disk.size(), 3u);
  EXPECT_EQ(experts.on_disk[0], "model.layers.0.block_sparse_moe.experts.0.w1");
  EXPECT_EQ(experts.group, "mlp.experts");
  EXPECT_EQ(tree.at("model.layers.0.mlp.gate").kind, ModuleKind::kGate);
  const RuntimeModule& qkv = tree.at("model.layers.0.self_attn.qkv_proj");
  EXPECT_EQ(qkv.class_name, "QKVParallelLinear");
  EXPECT_EQ(qkv.parts.size(), 3u);
  EXPECT_EQ(tree.at("model.layers.1.mlp.gate_up_proj").parts.size(), 2u);
  EXPECT_TRUE(tree.at("model.layers.1.mlp.down_proj").split_columns);
  EXPECT_EQ(tree.at("lm_head").kind, ModuleKind::kLmHead);
  EXPECT_EQ(tree.at("model.embed_tokens").kind, ModuleKind::kEmbedding);
}

TEST(ModuleTree, RenamesOnlyTheFamilyThatNeedsIt) {
  EXPECT_TRUE(TreeOf(kModules, "mixtral").contains("model.layers.0.block_sparse_moe.experts"));
}

}  // namespace
}  // namespace blockscale
