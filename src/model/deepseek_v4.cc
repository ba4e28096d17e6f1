// DeepSeek-V4: FP4 experts in I8 with E8M0 scales of 32, everything else FP8 with E8M0 scales of
// 128 x 128, all called "scale". Names, shapes and config: docs/formats.md, "Families".
#include <fmt/format.h>

#include <algorithm>

#include "model/family_tensors.h"
#include "model/tensor_list.h"

namespace blockscale {
namespace {

void AddFp8(TensorList& list, const std::string& module, uint64_t rows, uint64_t columns) {
  list.Fp8(module, rows, columns, DType::kF8E8M0, "scale");
}

void AddLayer(TensorList& list, const ModelSize& size, uint64_t layer) {
  const std::string prefix = fmt::format("layers.{}.", layer);
  const uint64_t q = size.heads * size.head_dim, kv = size.kv_heads * size.head_dim;
  list.Norm(prefix + "attn_norm", size.hidden);
  AddFp8(list, prefix + "attn.wq_a", std::max<uint64_t>(128, size.hidden / 2), size.hidden);
  AddFp8(list, prefix + "attn.wq_b", q, std::max<uint64_t>(128, size.hidden / 2));
  AddFp8(list, prefix + "attn.wkv", kv, size.hidden);
  AddFp8(list, prefix + "attn.wo", size.hidden, q);
  list.Norm(prefix + "ffn_norm", size.hidden);
  const std::string ffn = prefix + "ffn.";
  list.Plain(ffn + "gate", size.experts, size.hidden);
  list.Add(ffn + "gate.bias", DType::kF32, {size.experts});
  for (uint64_t expert = 0; expert < size.experts; ++expert) {
    const std::string name = fmt::format("{}experts.{}.", ffn, expert);
    list.DeepSeekFp4(name + "w1", size.intermediate, size.hidden);
    list.DeepSeekFp4(name + "w2", size.hidden, size.intermediate);
    list.DeepSeekFp4(name + "w3", size.intermediate, size.hidden);
  }
  AddFp8(list, ffn + "shared_experts.w1", size.intermediate, size.hidden);
  AddFp8(list, ffn + "shared_experts.w2", size.hidden, size.intermediate);
  AddFp8(list, ffn + "shared_experts.w3", size.intermediate, size.hidden);
}

}  // namespace

FamilyTensors DeepSeekV4Tensors(const ModelSize& size) {
  TensorList list;
  list.Plain("embed", size.vocab, size.hidden);
  for (uint64_t layer = 0; layer < size.layers; ++layer) AddLayer(list, size, layer);
  list.Norm("norm", size.hidden);
  list.Plain("head", size.vocab, size.hidden);
  nlohmann::ordered_json config = {{"architectures", {"DeepseekV4ForCausalLM"}},
                                   {"model_type", "deepseek_v4"},
                                   {"expert_dtype", "fp4"},
                                   {"hidden_size", size.hidden},
                                   {"moe_intermediate_size", size.intermediate},
                                   {"num_hidden_layers", size.layers},
                                   {"num_attention_heads", size.heads},
                                   {"num_key_value_heads", size.kv_heads},
                                   {"head_dim", size.head_dim},
                                   {"n_routed_experts", size.experts},
                                   {"num_experts_per_tok", std::min<uint64_t>(6, size.experts)},
                                   {"n_shared_experts", 1},
                                   {"scoring_func", "sqrtsoftplus"},
                                   {"swiglu_limit", 10.0},
                                   {"rms_norm_eps", 1e-06},
                                   {"vocab_size", size.vocab},
                                   {"quantization_config",
                                    {{"activation_scheme", "dynamic"},
                                     {"fmt", "e4m3"},
                                     {"quant_method", "fp8"},
                                     {"scale_fmt", "ue8m0"},
                                     {"weight_block_size", {128, 128}}}}};
  return {list.TakeTensors(), std::move(config), {}};
}

}  // namespace blockscale
