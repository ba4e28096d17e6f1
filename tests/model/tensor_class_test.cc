#include "model/tensor_class.h"

#include <gtest/gtest.h>

namespace blockscale {
namespace {

TEST(TensorClass, OfTheSpellingsInUse) {
  const std::pair<const char*, TensorClass> cases[] = {
      {"model.layers.0.block_sparse_moe.experts.3.w1.weight", TensorClass::kExperts},
      {"model.layers.0.block_sparse_moe.experts.3.w1.weight_scale_inv", TensorClass::kExperts},
      {"model.layers.0.mlp.experts.3.gate_proj.weight", TensorClass::kExperts},
      {"model.layers.0.mlp.shared_experts.up_proj.weight", TensorClass::kExperts},
      {"model.layers.0.block_sparse_moe.gate.weight", TensorClass::kRouter},
      {"model.layers.0.mlp.gate.e_score_correction_bias", TensorClass::kRouter},
      {"model.layers.0.block_sparse_moe.e_score_correction_bias", TensorClass::kRouter},
      {"model.layers.0.mlp.router.weight", TensorClass::kRouter},
      {"model.layers.0.mlp.gate_proj.weight", TensorClass::kOther},
      {"model.layers.0.self_attn.q_proj.weight", TensorClass::kAttention},
      {"model.layers.0.self_attn.kv_a_proj_with_mqa.weight_scale_inv", TensorClass::kAttention},
      {"model.layers.0.self_attn.q_norm.weight", TensorClass::kNorm},
      {"model.layers.0.self_attn.kv_a_layernorm.weight", TensorClass::kNorm},
      {"model.layers.0.input_layernorm.weight", TensorClass::kNorm},
      {"model.norm.weight", TensorClass::kNorm},
      {"model.embed_tokens.weight", TensorClass::kEmbedding},
      {"lm_head.weight", TensorClass::kEmbedding},
      {"model.layers.0.mlp.shared_expert_gate.weight", TensorClass::kRouter},
      {"model.layers.0.mlp.shared_expert.up_proj.weight", TensorClass::kExperts},
      {"model.layers.0.mixer.q_a_proj.weight_scale_inv", TensorClass::kAttention},
      {"model.layers.61.enorm.weight", TensorClass::kNorm},
      {"backbone.norm_f.weight", TensorClass::kNorm},
      {"transformer.ln_f.weight", TensorClass::kNorm},
      {"transformer.word_embeddings.weight", TensorClass::kEmbedding},
      {"model.layers.0.mlp.down_proj.weight", TensorClass::kOther},
      {"model.rotary.inv_freq", TensorClass::kOther},
      {"", TensorClass::kOther}};
  for (const auto& [name, expected] : cases)
    EXPECT_EQ(NameOf(ClassOf(name)), NameOf(expected)) << name;
}

}  // namespace
}  // namespace blockscale
