#include "model/minimax_m2.h"

#include <fmt/format.h>

namespace blockscale {
namespace {

constexpr uint64_t kBlock = 128;

uint64_t Blocks(uint64_t n) { return (n + kBlock - 1) / kBlock; }

void AddFp8(std::vector<TensorInfo>& tensors, const std::string& module, uint64_t rows,
            uint64_t columns) {
  tensors.push_back(
      {.name = module + ".weight", .dtype = DType::kF8E4M3, .shape = {rows, columns}});
  tensors.push_back({.name = module + ".weight_scale_inv",
                     .dtype = DType::kF32,
                     .shape = {Blocks(rows), Blocks(columns)}});
}

void Add(std::vector<TensorInfo>& tensors, const std::string& name, DType dtype,
         std::vector<uint64_t> shape) {
  tensors.push_back({.name = name, .dtype = dtype, .shape = std::move(shape)});
}

void AddLayer(std::vector<TensorInfo>& tensors, const ModelSize& size, uint64_t layer) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const std::string moe = prefix + "block_sparse_moe.";
  Add(tensors, moe + "e_score_correction_bias", DType::kF32, {size.experts});
  Add(tensors, moe + "gate.weight", DType::kF32, {size.experts, size.hidden});
  for (uint64_t expert = 0; expert < size.experts; ++expert) {
    const std::string name = fmt::format("{}experts.{}.", moe, expert);
    AddFp8(tensors, name + "w1", size.intermediate, size.hidden);
    AddFp8(tensors, name + "w2", size.hidden, size.intermediate);
    AddFp8(tensors, name + "w3", size.intermediate, size.hidden);
  }
  const uint64_t q = size.heads * size.head_dim, kv = size.kv_heads * size.head_dim;
  Add(tensors, prefix + "input_layernorm.weight", DType::kBF16, {size.hidden});
  Add(tensors, prefix + "post_attention_layernorm.weight", DType::kBF16, {size.hidden});
  Add(tensors, prefix + "self_attn.q_norm.weight", DType::kBF16, {q});
  Add(tensors, prefix + "self_attn.k_norm.weight", DType::kBF16, {kv});
  AddFp8(tensors, prefix + "self_attn.q_proj", q, size.hidden);
  AddFp8(tensors, prefix + "self_attn.k_proj", kv, size.hidden);
  AddFp8(tensors, prefix + "self_attn.v_proj", kv, size.hidden);
  AddFp8(tensors, prefix + "self_attn.o_proj", size.hidden, q);
}

}  // namespace

ModelSize MiniMaxM27Size() {
  return {.layers = 62,
          .experts = 256,
          .hidden = 3072,
          .intermediate = 1536,
          .heads = 48,
          .kv_heads = 8,
          .head_dim = 128,
          .vocab = 200064};
}

std::vector<TensorInfo> MiniMaxM2Tensors(const ModelSize& size) {
  std::vector<TensorInfo> tensors;
  Add(tensors, "model.embed_tokens.weight", DType::kBF16, {size.vocab, size.hidden});
  for (uint64_t layer = 0; layer < size.layers; ++layer) AddLayer(tensors, size, layer);
  Add(tensors, "model.norm.weight", DType::kBF16, {size.hidden});
  Add(tensors, "lm_head.weight", DType::kBF16, {size.vocab, size.hidden});
  return tensors;
}

nlohmann::ordered_json MiniMaxM2Config(const ModelSize& size) {
  return {{"architectures", {"MiniMaxM2ForCausalLM"}},
          {"attention_dropout", 0.0},
          {"attn_type_list", std::vector<int>(size.layers, 1)},
          {"auto_map",
           {{"AutoConfig", "configuration_minimax_m2.MiniMaxM2Config"},
            {"AutoModelForCausalLM", "modeling_minimax_m2.MiniMaxM2ForCausalLM"}}},
          {"dtype", "bfloat16"},
          {"head_dim", size.head_dim},
          {"hidden_act", "silu"},
          {"hidden_size", size.hidden},
          {"intermediate_size", size.intermediate},
          {"max_position_embeddings", 204800},
          {"model_type", "minimax_m2"},
          {"mtp_transformer_layers", 1},
          {"num_attention_heads", size.heads},
          {"num_experts_per_tok", std::min<uint64_t>(8, size.experts)},
          {"num_hidden_layers", size.layers},
          {"num_key_value_heads", size.kv_heads},
          {"num_local_experts", size.experts},
          {"num_mtp_modules", 3},
          {"qk_norm_type", "per_layer"},
          {"quantization_config",
           {{"activation_scheme", "dynamic"},
            {"fmt", "float8_e4m3fn"},
            {"quant_method", "fp8"},
            {"weight_block_size", {kBlock, kBlock}},
            {"modules_to_not_convert", {"gate", "e_score_correction_bias", "lm_head"}}}},
          {"rms_norm_eps", 1e-06},
          {"rope_theta", 5000000},
          {"rotary_dim", 64},
          {"scoring_func", "sigmoid"},
          {"shared_intermediate_size", 0},
          {"tie_word_embeddings", false},
          {"use_cache", true},
          {"use_mtp", true},
          {"use_qk_norm", true},
          {"use_routing_bias", true},
          {"vocab_size", size.vocab}};
}

std::vector<std::pair<std::string, std::string>> MiniMaxM2SideFiles() {
  const std::string stand_in =
      "# A stand-in for the model's own code: synthetic checkpoints have weights, not a model.\n";
  return {
      {"chat_template.jinja", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"},
      {"configuration_minimax_m2.py", stand_in + "class MiniMaxM2Config:\n    pass\n"},
      {"generation_config.json",
       "{\n  \"do_sample\": true,\n  \"temperature\": 1.0,\n  \"top_p\": 0.95\n}\n"},
      {"modeling_minimax_m2.py", stand_in + "class MiniMaxM2ForCausalLM:\n    pass\n"},
      {"tokenizer.json", "{\n  \"version\": \"1.0\",\n  \"stand_in\": true\n}\n"},
      {"tokenizer_config.json", "{\n  \"tokenizer_class\": \"StandIn\"\n}\n"}};
}

}  // namespace blockscale
