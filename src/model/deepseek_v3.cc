// DeepSeek-V3 and R1 (FP8 in blocks of 128 x 128), and Kimi-K2 Thinking, which has their structure
// with INT4 experts and everything else BF16. Names, shapes and configs: docs/formats.md,
// "Families".
#include <fmt/format.h>

#include <algorithm>

#include "model/family_tensors.h"
#include "model/latent_attention.h"
#include "model/tensor_list.h"

namespace blockscale {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Layer 0 is dense; the others have experts and one shared one.
void AddLayer(TensorList& list, const ModelSize& size, uint64_t layer, const AddMatrix& expert,
              const AddMatrix& other) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  list.Norm(prefix + "input_layernorm", size.hidden);
  list.Norm(prefix + "self_attn.q_a_layernorm", QueryRank(size));
  list.Norm(prefix + "self_attn.kv_a_layernorm", KeyValueRank(size));
  AddLatentAttention(size, prefix + "self_attn.", other);
  list.Norm(prefix + "post_attention_layernorm", size.hidden);
  const std::string mlp = prefix + "mlp.";
  if (layer == 0) return AddMlp(mlp, size.hidden, 4 * size.intermediate, other);
  list.Plain(mlp + "gate", size.experts, size.hidden);
  list.Add(mlp + "gate.e_score_correction_bias", DType::kF32, {size.experts});
  for (uint64_t index = 0; index < size.experts; ++index)
    AddMlp(fmt::format("{}experts.{}.", mlp, index), size.hidden, size.intermediate, expert);
  AddMlp(mlp + "shared_experts.", size.hidden, size.intermediate, other);
}

std::vector<TensorInfo> AddModel(TensorList& list, const ModelSize& size, const AddMatrix& expert,
                                 const AddMatrix& other) {
  list.Plain("model.embed_tokens", size.vocab, size.hidden);
  for (uint64_t layer = 0; layer < size.layers; ++layer) AddLayer(list, size, layer, expert, other);
  list.Norm("model.norm", size.hidden);
  list.Plain("lm_head", size.vocab, size.hidden);
  return list.TakeTensors();
}

OrderedJson Config(const ModelSize& size, const char* type) {
  return {{"architectures", {"DeepseekV3ForCausalLM"}},
          {"model_type", type},
          {"torch_dtype", "bfloat16"},
          {"hidden_size", size.hidden},
          {"intermediate_size", 4 * size.intermediate},
          {"moe_intermediate_size", size.intermediate},
          {"num_hidden_layers", size.layers},
          {"first_k_dense_replace", 1},
          {"num_attention_heads", size.heads},
          {"num_key_value_heads", size.heads},
          {"q_lora_rank", QueryRank(size)},
          {"kv_lora_rank", KeyValueRank(size)},
          {"qk_nope_head_dim", size.head_dim},
          {"qk_rope_head_dim", kRotated},
          {"v_head_dim", size.head_dim},
          {"n_routed_experts", size.experts},
          {"num_experts_per_tok", std::min<uint64_t>(8, size.experts)},
          {"n_shared_experts", 1},
          {"n_group", 1},
          {"topk_group", 1},
          {"topk_method", "noaux_tc"},
          {"scoring_func", "sigmoid"},
          {"norm_topk_prob", true},
          {"routed_scaling_factor", 2.5},
          {"hidden_act", "silu"},
          {"rms_norm_eps", 1e-06},
          {"vocab_size", size.vocab}};
}

}  // namespace

FamilyTensors DeepSeekV3Tensors(const ModelSize& size) {
  TensorList list;
  const AddMatrix fp8 = [&](const std::string& module, uint64_t rows, uint64_t columns) {
    list.Fp8(module, rows, columns, DType::kF32, "weight_scale_inv");
  };
  std::vector<TensorInfo> tensors = AddModel(list, size, fp8, fp8);
  OrderedJson config = Config(size, "deepseek_v3");
  config["quantization_config"] = {{"activation_scheme", "dynamic"},
                                   {"fmt", "e4m3"},
                                   {"quant_method", "fp8"},
                                   {"weight_block_size", {128, 128}}};
  return {std::move(tensors), std::move(config), {}};
}

FamilyTensors KimiK2Tensors(const ModelSize& size) {
  TensorList list;
  const AddMatrix int4 = [&](const std::string& module, uint64_t rows, uint64_t columns) {
    list.PackedInt4(module, rows, columns);
  };
  const AddMatrix plain = [&](const std::string& module, uint64_t rows, uint64_t columns) {
    list.Plain(module, rows, columns);
  };
  std::vector<TensorInfo> tensors = AddModel(list, size, int4, plain);
  OrderedJson config = Config(size, "kimi_k2");
  const OrderedJson weights = {{"num_bits", 4},       {"type", "int"},    {"symmetric", true},
                               {"strategy", "group"}, {"group_size", 32}, {"dynamic", false}};
  config["quantization_config"] = {
      {"quant_method", "compressed-tensors"},
      {"format", "pack-quantized"},
      {"quantization_status", "compressed"},
      {"config_groups",
       {{"group_0",
         {{"input_activations", nullptr}, {"targets", {"Linear"}}, {"weights", weights}}}}},
      {"ignore",
       {"lm_head", "re:.*self_attn.*", "re:.*shared_experts.*",
        "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"}}};
  return {std::move(tensors), std::move(config), list.TakeFixed()};
}

}  // namespace blockscale
