// Qwen3 MoE and GLM-4.5 MoE in FP8 blocks: grouped-query attention and experts of three
// projections. Qwen3's scales are BF16; GLM has a dense first layer, a shared expert and a
// correction bias. Names, shapes and configs: docs/formats.md, "Families".
#include <fmt/format.h>

#include <algorithm>

#include "model/family_tensors.h"
#include "model/latent_attention.h"
#include "model/tensor_list.h"

namespace blockscale {
namespace {

using OrderedJson = nlohmann::ordered_json;

void AddAttention(TensorList& list, const ModelSize& size, const std::string& prefix,
                  const AddMatrix& add) {
  const uint64_t q = size.heads * size.head_dim, kv = size.kv_heads * size.head_dim;
  list.Norm(prefix + "q_norm", size.head_dim);
  list.Norm(prefix + "k_norm", size.head_dim);
  add(prefix + "q_proj", q, size.hidden);
  add(prefix + "k_proj", kv, size.hidden);
  add(prefix + "v_proj", kv, size.hidden);
  add(prefix + "o_proj", size.hidden, q);
}

void AddLayer(TensorList& list, const ModelSize& size, uint64_t layer, bool glm,
              const AddMatrix& add) {
  const std::string prefix = fmt::format("model.layers.{}.", layer), mlp = prefix + "mlp.";
  list.Norm(prefix + "input_layernorm", size.hidden);
  AddAttention(list, size, prefix + "self_attn.", add);
  list.Norm(prefix + "post_attention_layernorm", size.hidden);
  if (glm && layer == 0) return AddMlp(mlp, size.hidden, 4 * size.intermediate, add);
  list.Plain(mlp + "gate", size.experts, size.hidden);
  if (glm) list.Add(mlp + "gate.e_score_correction_bias", DType::kF32, {size.experts});
  for (uint64_t expert = 0; expert < size.experts; ++expert)
    AddMlp(fmt::format("{}experts.{}.", mlp, expert), size.hidden, size.intermediate, add);
  if (glm) AddMlp(mlp + "shared_experts.", size.hidden, size.intermediate, add);
}

FamilyTensors Make(const ModelSize& size, bool glm) {
  TensorList list;
  const AddMatrix add = [&](const std::string& module, uint64_t rows, uint64_t columns) {
    list.Fp8(module, rows, columns, glm ? DType::kF32 : DType::kBF16, "weight_scale_inv");
  };
  list.Plain("model.embed_tokens", size.vocab, size.hidden);
  for (uint64_t layer = 0; layer < size.layers; ++layer) AddLayer(list, size, layer, glm, add);
  list.Norm("model.norm", size.hidden);
  list.Plain("lm_head", size.vocab, size.hidden);
  OrderedJson config = {{"architectures", {glm ? "Glm4MoeForCausalLM" : "Qwen3MoeForCausalLM"}},
                        {"model_type", glm ? "glm4_moe" : "qwen3_moe"},
                        {"torch_dtype", "bfloat16"},
                        {"hidden_size", size.hidden},
                        {"moe_intermediate_size", size.intermediate},
                        {"num_hidden_layers", size.layers},
                        {"num_attention_heads", size.heads},
                        {"num_key_value_heads", size.kv_heads},
                        {"head_dim", size.head_dim},
                        {glm ? "n_routed_experts" : "num_experts", size.experts},
                        {"num_experts_per_tok", std::min<uint64_t>(8, size.experts)},
                        {"norm_topk_prob", true},
                        {"hidden_act", "silu"},
                        {"rms_norm_eps", glm ? 1e-05 : 1e-06},
                        {"vocab_size", size.vocab},
                        {"quantization_config",
                         {{"activation_scheme", "dynamic"},
                          {"fmt", "e4m3"},
                          {"quant_method", "fp8"},
                          {"weight_block_size", {128, 128}}}}};
  if (glm) {
    config["first_k_dense_replace"] = 1;
    config["n_shared_experts"] = 1;
    config["routed_scaling_factor"] = 2.5;
  }
  return {list.TakeTensors(), std::move(config), {}};
}

}  // namespace

FamilyTensors Qwen3MoeTensors(const ModelSize& size) { return Make(size, false); }
FamilyTensors GlmMoeTensors(const ModelSize& size) { return Make(size, true); }

}  // namespace blockscale
