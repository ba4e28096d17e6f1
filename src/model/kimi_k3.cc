// Kimi-K3: MXFP4 experts in a latent space of half the hidden width, everything else BF16. Names,
// shapes and config: docs/formats.md, "Families".
#include <fmt/format.h>

#include "model/family_tensors.h"
#include "model/tensor_list.h"

namespace blockscale {
namespace {

uint64_t LatentOf(const ModelSize& size) { return size.hidden / 2; }

void AddAttention(TensorList& list, const ModelSize& size, const std::string& prefix) {
  const uint64_t q = size.heads * size.head_dim, kv = size.kv_heads * size.head_dim;
  list.Plain(prefix + "q_proj", q, size.hidden);
  list.Plain(prefix + "k_proj", kv, size.hidden);
  list.Plain(prefix + "v_proj", kv, size.hidden);
  list.Plain(prefix + "o_proj", size.hidden, q);
}

void AddLayer(TensorList& list, const ModelSize& size, uint64_t layer) {
  const std::string prefix = fmt::format("language_model.model.layers.{}.", layer);
  const uint64_t latent = LatentOf(size);
  list.Norm(prefix + "input_layernorm", size.hidden);
  AddAttention(list, size, prefix + "self_attn.");
  list.Norm(prefix + "post_attention_layernorm", size.hidden);
  if (layer == 0) {  // one dense layer
    list.Plain(prefix + "mlp.gate_proj", 2 * size.intermediate, size.hidden);
    list.Plain(prefix + "mlp.up_proj", 2 * size.intermediate, size.hidden);
    list.Plain(prefix + "mlp.down_proj", size.hidden, 2 * size.intermediate);
    return;
  }
  const std::string moe = prefix + "block_sparse_moe.";
  list.Plain(moe + "gate", size.experts, size.hidden);
  list.Add(moe + "gate.e_score_correction_bias", DType::kF32, {size.experts});
  list.Plain(moe + "routed_expert_down_proj", latent, size.hidden);
  for (uint64_t expert = 0; expert < size.experts; ++expert) {
    const std::string name = fmt::format("{}experts.{}.", moe, expert);
    list.PackedMxfp4(name + "w1", size.intermediate, latent);
    list.PackedMxfp4(name + "w3", size.intermediate, latent);
    list.PackedMxfp4(name + "w2", latent, size.intermediate);
  }
  list.Norm(moe + "routed_expert_norm", latent);
  list.Plain(moe + "routed_expert_up_proj", size.hidden, latent);
  for (const char* part : {"gate_proj", "up_proj"})
    list.Plain(moe + "shared_experts." + part, 2 * size.intermediate, size.hidden);
  list.Plain(moe + "shared_experts.down_proj", size.hidden, 2 * size.intermediate);
}

nlohmann::ordered_json Config(const ModelSize& size) {
  const nlohmann::ordered_json weights = {{"num_bits", 4},
                                          {"type", "float"},
                                          {"symmetric", true},
                                          {"strategy", "group"},
                                          {"group_size", 32},
                                          {"dynamic", false},
                                          {"scale_dtype", "torch.uint8"},
                                          {"observer", "minmax"}};
  const nlohmann::ordered_json group = {{"format", "mxfp4-pack-quantized"},
                                        {"input_activations", nullptr},
                                        {"targets", {"Linear"}},
                                        {"weights", weights}};
  const nlohmann::ordered_json quantization = {
      {"quant_method", "compressed-tensors"},
      {"format", "mxfp4-pack-quantized"},
      {"quantization_status", "compressed"},
      {"config_groups", {{"group_0", group}}},
      {"ignore",
       {"re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
        "re:.*lm_head.*", "re:.*vision_tower.*", "re:.*mm_projector.*"}}};
  return {{"architectures", {"KimiK3ForConditionalGeneration"}},
          {"model_type", "kimi_k3"},
          {"dtype", "bfloat16"},
          {"text_config",
           {{"model_type", "kimi_k3_text"},
            {"hidden_size", size.hidden},
            {"routed_expert_hidden_size", LatentOf(size)},
            {"moe_intermediate_size", size.intermediate},
            {"num_hidden_layers", size.layers},
            {"first_k_dense_replace", 1},
            {"num_attention_heads", size.heads},
            {"num_key_value_heads", size.kv_heads},
            {"head_dim", size.head_dim},
            {"num_experts", size.experts},
            {"num_experts_per_token", std::min<uint64_t>(16, size.experts)},
            {"num_shared_experts", 2},
            {"num_expert_group", 1},
            {"topk_group", 1},
            {"hidden_act", "situ"},
            {"situ_beta", 4.0},
            {"situ_linear_beta", 25.0},
            {"moe_router_activation_func", "sigmoid"},
            {"moe_renormalize", true},
            {"routed_scaling_factor", 1.0},
            {"rms_norm_eps", 1e-05},
            {"vocab_size", size.vocab},
            {"quantization_config", quantization}}}};
}

}  // namespace

FamilyTensors KimiK3Tensors(const ModelSize& size) {
  TensorList list;
  list.Plain("language_model.model.embed_tokens", size.vocab, size.hidden);
  for (uint64_t layer = 0; layer < size.layers; ++layer) AddLayer(list, size, layer);
  list.Norm("language_model.model.norm", size.hidden);
  list.Plain("language_model.lm_head", size.vocab, size.hidden);
  list.Plain("vision_tower.patch_embed.proj", 64, 64);
  list.Plain("mm_projector.linear_1", 64, 64);
  return {list.TakeTensors(), Config(size), {}};
}

}  // namespace blockscale
