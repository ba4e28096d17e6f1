// gpt-oss: MXFP4 experts of a layer stacked into one tensor, rows of gate and up in turn, with
// biases; attention BF16 with biases and sinks. Names, shapes and config: docs/formats.md,
// "Families".
#include <fmt/format.h>

#include <algorithm>

#include "model/family_tensors.h"
#include "model/tensor_list.h"

namespace blockscale {
namespace {

void AddStacked(TensorList& list, const std::string& stem, uint64_t experts, uint64_t rows,
                uint64_t columns) {
  list.Add(stem + "_blocks", DType::kU8, {experts, rows, columns / 32, 16});
  list.Add(stem + "_scales", DType::kU8, {experts, rows, columns / 32});
  list.Add(stem + "_bias", DType::kBF16, {experts, rows});
}

void AddWithBias(TensorList& list, const std::string& module, uint64_t rows, uint64_t columns) {
  list.Plain(module, rows, columns);
  list.Add(module + ".bias", DType::kBF16, {rows});
}

void AddLayer(TensorList& list, const ModelSize& size, uint64_t layer) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const uint64_t q = size.heads * size.head_dim, kv = size.kv_heads * size.head_dim;
  list.Norm(prefix + "input_layernorm", size.hidden);
  list.Add(prefix + "self_attn.sinks", DType::kBF16, {size.heads});
  AddWithBias(list, prefix + "self_attn.q_proj", q, size.hidden);
  AddWithBias(list, prefix + "self_attn.k_proj", kv, size.hidden);
  AddWithBias(list, prefix + "self_attn.v_proj", kv, size.hidden);
  AddWithBias(list, prefix + "self_attn.o_proj", size.hidden, q);
  list.Norm(prefix + "post_attention_layernorm", size.hidden);
  AddWithBias(list, prefix + "mlp.router", size.experts, size.hidden);
  const std::string experts = prefix + "mlp.experts.";
  AddStacked(list, experts + "gate_up_proj", size.experts, 2 * size.intermediate, size.hidden);
  AddStacked(list, experts + "down_proj", size.experts, size.hidden, size.intermediate);
}

}  // namespace

FamilyTensors GptOssTensors(const ModelSize& size) {
  TensorList list;
  list.Plain("model.embed_tokens", size.vocab, size.hidden);
  for (uint64_t layer = 0; layer < size.layers; ++layer) AddLayer(list, size, layer);
  list.Norm("model.norm", size.hidden);
  list.Plain("lm_head", size.vocab, size.hidden);
  nlohmann::ordered_json config = {{"architectures", {"GptOssForCausalLM"}},
                                   {"model_type", "gpt_oss"},
                                   {"hidden_size", size.hidden},
                                   {"intermediate_size", size.intermediate},
                                   {"num_hidden_layers", size.layers},
                                   {"num_attention_heads", size.heads},
                                   {"num_key_value_heads", size.kv_heads},
                                   {"head_dim", size.head_dim},
                                   {"num_local_experts", size.experts},
                                   {"num_experts_per_tok", std::min<uint64_t>(4, size.experts)},
                                   {"hidden_act", "silu"},
                                   {"swiglu_limit", 7.0},
                                   {"rms_norm_eps", 1e-05},
                                   {"vocab_size", size.vocab},
                                   {"quantization_config",
                                    {{"modules_to_not_convert",
                                      {"model.layers.*.self_attn", "model.layers.*.mlp.router",
                                       "model.embed_tokens", "lm_head"}},
                                     {"quant_method", "mxfp4"}}}};
  return {list.TakeTensors(), std::move(config), {}};
}

}  // namespace blockscale
