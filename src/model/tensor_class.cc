#include "model/tensor_class.h"

#include <algorithm>
#include <array>

namespace blockscale {
namespace {

// The parts of a dotted name that decide, looked for as whole parts.
constexpr std::string_view kAttentionParts[] = {"self_attn", "attn",
                                                "attention", "linear_attn",
                                                "q_proj",    "k_proj",
                                                "v_proj",    "o_proj",
                                                "qkv_proj",  "q_a_proj",
                                                "q_b_proj",  "kv_b_proj",
                                                "kv_a_proj", "kv_a_proj_with_mqa",
                                                "wq_a",      "wq_b",
                                                "wkv",       "wo",
                                                "sinks"};
constexpr std::string_view kRouterParts[] = {"gate", "router", "e_score_correction_bias",
                                             "shared_expert_gate"};
constexpr std::string_view kExpertParts[] = {"experts", "shared_experts", "shared_expert"};
constexpr std::string_view kEmbeddingParts[] = {"embed_tokens",
                                                "lm_head",
                                                "wte",
                                                "wpe",
                                                "embed",
                                                "head",
                                                "word_embeddings",
                                                "position_embeddings",
                                                "token_type_embeddings"};

template <size_t kCount>
bool IsOneOf(std::string_view part, const std::string_view (&list)[kCount]) {
  return std::find(std::begin(list), std::end(list), part) != std::end(list);
}

// Calls visit(part) for the dotted parts of a name until it returns true.
template <typename Visit>
bool AnyPart(std::string_view name, Visit visit) {
  while (true) {
    const size_t dot = name.find('.');
    if (visit(name.substr(0, dot))) return true;
    if (dot == std::string_view::npos) return false;
    name.remove_prefix(dot + 1);
  }
}

// "norm", "q_norm", "input_layernorm", "enorm", "norm_f"; "ln_f" says the same in two letters.
bool IsNorm(std::string_view part) {
  return part.find("norm") != std::string_view::npos || part.starts_with("ln_");
}

}  // namespace

TensorClass ClassOf(std::string_view name) {
  // Norms first: q_norm stands inside self_attn; the router before experts and after norms.
  if (AnyPart(name, IsNorm)) return TensorClass::kNorm;
  const auto has = [&](const auto& list) {
    return AnyPart(name, [&](std::string_view part) { return IsOneOf(part, list); });
  };
  if (has(kRouterParts)) return TensorClass::kRouter;
  if (has(kExpertParts)) return TensorClass::kExperts;
  if (has(kAttentionParts)) return TensorClass::kAttention;
  if (has(kEmbeddingParts)) return TensorClass::kEmbedding;
  return TensorClass::kOther;
}

}  // namespace blockscale
