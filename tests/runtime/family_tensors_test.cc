// What a MiniMax-M2 must have, and what nobody would load.

#include "runtime/family_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sample_model.h"
#include "support/temp_folder.h"

namespace blockscale {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace testing;  // NOLINT

std::string FindingsOf(const Tensors& tensors, const std::string& more_config = "",
                       int layers = 1) {
  TempFolder folder;
  WriteCheckpoint(folder.path(), {{"m.safetensors", tensors}},
                  ConfigText(Int8Quantization(), more_config, layers));
  const auto checkpoint = Checkpoint::Open(PosixFileSystem(), folder.path());
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  std::vector<ContractFinding> findings;
  GroupedFindings grouped(&findings);
  CheckFamilyTensors(*checkpoint, grouped);
  grouped.Flush();
  std::string text;
  for (const ContractFinding& finding : findings) {
    EXPECT_TRUE(finding.error);
    text += finding.object + ": " + finding.message + "\n";
  }
  return text;
}

TEST(FamilyTensors, NothingIsWrongWithAWholeModel) { EXPECT_EQ(FindingsOf(GoodTensors()), ""); }

TEST(FamilyTensors, NamesEveryTensorThatIsMissing) {
  for (const TestTensor& tensor : GoodTensors()) {
    // Of the experts, CheckOnDisk counts all but the first; scales are its matter too.
    if (tensor.name.find("experts.1.") != std::string::npos) continue;
    if (tensor.name.ends_with("_scale")) continue;
    Tensors tensors = GoodTensors();
    Remove(tensors, tensor.name);
    EXPECT_THAT(FindingsOf(tensors), HasSubstr(tensor.name + ": is missing"));
  }
}

TEST(FamilyTensors, AMissingLayerIsCountedOncePerKind) {
  const Tensors one = GoodTensors();
  Tensors tensors = one;
  for (TestTensor tensor : one) {
    const size_t layer = tensor.name.find("layers.0.");
    if (layer == std::string::npos) continue;
    tensor.name[layer + 7] = '2';
    tensors.push_back(tensor);
  }
  EXPECT_EQ(FindingsOf(one, "", 1), "");
  EXPECT_THAT(FindingsOf(one, "", 2), HasSubstr("layers.1.self_attn.q_proj.weight: is missing"));
  EXPECT_THAT(FindingsOf(tensors, "", 4),
              HasSubstr("layers.1.self_attn.q_proj.weight: is missing; the loader does not look "
                        "for missing tensors of a quantised model, and the parameter keeps what "
                        "its memory held: silently wrong (and 1 more of this kind)"));
  EXPECT_THAT(FindingsOf(tensors), HasSubstr("is of layer 2, num_hidden_layers is 1: KeyError"));
  EXPECT_EQ(FindingsOf(tensors, R"("num_mtp_modules":2,)"), "");
  EXPECT_THAT(FindingsOf(tensors, R"("num_mtp_modules":1,)"), HasSubstr("is of layer 2"));
}

TEST(FamilyTensors, ShapesFollowFromTheConfig) {
  for (const char* name : {"model.layers.0.self_attn.k_norm.weight", "model.norm.weight",
                           "model.layers.0.block_sparse_moe.e_score_correction_bias"}) {
    Tensors tensors = GoodTensors();
    TestTensor& tensor = Find(tensors, name);
    tensor.shape[0] /= 2;
    tensor.bytes.resize(tensor.bytes.size() / 2);
    EXPECT_THAT(FindingsOf(tensors), AllOf(HasSubstr(name), HasSubstr("the config's sizes give")));
  }
}

TEST(FamilyTensors, WhatNoParameterWaitsFor) {
  const auto with = [](const std::string& name) {
    Tensors tensors = GoodTensors();
    tensors.push_back({name, "F32", {1}, FloatBytes({1})});
    return FindingsOf(tensors);
  };
  for (const char* unknown :
       {"model.extra", "layers.0.x", "lm_head.norm", "model.layers.0.mlp.w1.weight",
        "model.layers.0.self_attn.q_proj.weight_packed", "model.layers.0.model.norm.weight",
        "model.layers.0.block_sparse_moe.experts.0.w4.weight"})
    EXPECT_THAT(with(unknown), HasSubstr("belongs to no parameter")) << unknown;
  for (const char* known :
       {"model.layers.0.self_attn.q_proj.bias", "model.layers.0.self_attn.rotary_emb.inv_freq",
        "model.layers.0.self_attn.k_proj.k_scale",
        "model.layers.0.self_attn.q_proj.weight_zero_point",
        "model.layers.0.block_sparse_moe.experts.0.w1.weight_zero_point"})
    EXPECT_EQ(with(known), "") << known;
}

TEST(FamilyTensors, TiedEmbeddingsNeedNoHead) {
  Tensors tensors = GoodTensors();
  Remove(tensors, "lm_head.weight");
  EXPECT_EQ(FindingsOf(tensors, R"("tie_word_embeddings":true,)"), "");
  EXPECT_THAT(FindingsOf(tensors, R"("tie_word_embeddings":false,)"), HasSubstr("lm_head"));
}

}  // namespace
}  // namespace blockscale
