#include "runtime/module_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temp_folder.h"
#include "support/tensor_file.h"

namespace blockscale {
namespace {

using testing::TestTensor;

std::map<std::string, RuntimeModule> TreeOf(const std::vector<std::string>& modules,
                                            const std::string& model_type,
                                            const std::string& more_config = "") {
  testing::TempFolder folder;
  std::vector<TestTensor> tensors;
  for (const std::string& module : modules)
    tensors.push_back({module + ".weight", "I8", {1, 1}, "x"});
  tensors.push_back({"model.norm.weight", "BF16", {1}, "xx"});
  testing::WriteCheckpoint(folder.path(), {{"m.safetensors", tensors}},
                           R"({"model_type":")" + model_type + "\"" + more_config + "}");
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

TEST(ModuleTree, SaysWhoIsNotAskedForAScheme) {
  const auto minimax = TreeOf(kModules, "minimax_m2"), mixtral = TreeOf(kModules, "mixtral");
  EXPECT_FALSE(minimax.at("lm_head").asks_config);
  EXPECT_TRUE(mixtral.at("lm_head").asks_config);
  EXPECT_FALSE(minimax.at("model.layers.0.mlp.gate").asks_config);
  EXPECT_FALSE(mixtral.at("model.embed_tokens").asks_config);
  EXPECT_TRUE(minimax.at("model.layers.0.mlp.experts").asks_config);
}

TEST(ModuleTree, LeavesOutLayersOfMultiTokenPrediction) {
  const std::vector<std::string> modules = {"model.layers.0.self_attn.o_proj",
                                            "model.layers.1.self_attn.o_proj",
                                            "model.layers.2.self_attn.o_proj"};
  const std::string one = R"(,"num_hidden_layers":1)";
  EXPECT_EQ(TreeOf(modules, "minimax_m2", one).size(), 3u);
  EXPECT_EQ(TreeOf(modules, "minimax_m2", one + R"(,"num_mtp_modules":1)").size(), 2u);
  EXPECT_EQ(TreeOf(modules, "minimax_m2", one + R"(,"num_mtp_modules":3)").size(), 1u);
  EXPECT_EQ(TreeOf(modules, "mixtral", one + R"(,"num_mtp_modules":3)").size(), 3u);
}

TEST(ModuleTree, ReadsPlacesOutOfNames) {
  EXPECT_EQ(LayerOf("model.layers.61.mlp"), 61u);
  for (const char* none : {"model.norm", "model.layers.", "model.layers.x.y", "model.layers.3",
                           "layers.99999999999999999999.x"})
    EXPECT_EQ(LayerOf(none), std::nullopt) << none;
  const auto place = PlaceOfExpert("model.layers.0.mlp.experts.7.down_proj");
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->expert, 7u);
  EXPECT_EQ(place->part, ExpertPlace::Part::kDown);
  EXPECT_EQ(PlaceOfExpert("m.experts.7.w3")->part, ExpertPlace::Part::kUp);
  EXPECT_EQ(PlaceOfExpert("m.experts.7.w4")->part, ExpertPlace::Part::kOther);
  for (const char* none : {"m.experts.7", "m.experts.x.w1", "m.experts.gate_up_proj", "m.w1"})
    EXPECT_FALSE(PlaceOfExpert(none).has_value()) << none;
}

}  // namespace
}  // namespace blockscale
