#include "model/tensor_class.h"

#include <algorithm>
#include <array>

namespace blockscale {
namespace {

// The parts of a dotted name that decide, looked for as whole parts.
constexpr std::string_view kAttentionParts[] = {"self_attn", "attn", "attention", "linear_attn"};
constexpr std::string_view kRouterParts[] = {"gate", "router", "e_score_correction_bias"};
constexpr std::string_view kEmbeddingParts[] = {"embed_tokens", "lm_head", "wte", "embed"};

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

bool IsNorm(std::string_view part) {
  return part == "norm" || part.ends_with("_norm") || part.ends_with("layernorm") ||
         part.starts_with("norm_") || part.starts_with("ln_");
}

}  // namespace

TensorClass ClassOf(std::string_view name) {
  // Norms first: q_norm stands inside self_attn; the router before experts and after norms.
  if (AnyPart(name, IsNorm)) return TensorClass::kNorm;
  const auto has = [&](const auto& list) {
    return AnyPart(name, [&](std::string_view part) { return IsOneOf(part, list); });
  };
  if (has(kRouterParts)) return TensorClass::kRouter;
  if (AnyPart(name, [](std::string_view part) {
        return part == "experts" || part == "shared_experts" || part == "shared_expert";
      }))
    return TensorClass::kExperts;
  if (has(kAttentionParts)) return TensorClass::kAttention;
  if (has(kEmbeddingParts)) return TensorClass::kEmbedding;
  return TensorClass::kOther;
}

}  // namespace blockscale
