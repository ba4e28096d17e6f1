// The model families, one list: a row says how a family's checkpoints are named and sized. A family
// that is not listed is "unknown": its tensors are still read, classed and converted by presence.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/enum_list.h"
#include "checkpoint/hf_config.h"

namespace blockscale {

// (enumerator, id, name, model_type in config.json, architecture)
#define BLOCKSCALE_FAMILIES(X)                                             \
  X(kMiniMaxM2, 0, "minimax-m2", "minimax_m2", "MiniMaxM2ForCausalLM")     \
  X(kKimiK3, 1, "kimi-k3", "kimi_k3", "KimiK3ForConditionalGeneration")    \
  X(kKimiK2, 2, "kimi-k2", "kimi_k2", "KimiK2ForCausalLM")                 \
  X(kDeepSeekV3, 3, "deepseek-v3", "deepseek_v3", "DeepseekV3ForCausalLM") \
  X(kDeepSeekV4, 4, "deepseek-v4", "deepseek_v4", "DeepseekV4ForCausalLM") \
  X(kGptOss, 5, "gpt-oss", "gpt_oss", "GptOssForCausalLM")                 \
  X(kQwen3Moe, 6, "qwen3-moe", "qwen3_moe", "Qwen3MoeForCausalLM")         \
  X(kGlmMoe, 7, "glm-moe", "glm4_moe", "Glm4MoeForCausalLM")

BLOCKSCALE_ENUM_LIST(Family, BLOCKSCALE_FAMILIES)

struct FamilyNames {
  std::string_view model_type;
  std::string_view architecture;
};

constexpr FamilyNames NamesOf(Family family) {
#define BLOCKSCALE_FAMILY_NAMES(enumerator, id, name, model_type, architecture) \
  case Family::enumerator:                                                      \
    return {model_type, architecture};
  switch (family) { BLOCKSCALE_FAMILIES(BLOCKSCALE_FAMILY_NAMES) }
#undef BLOCKSCALE_FAMILY_NAMES
  return {};
}

// By model_type, then by architecture; nullopt for a family that is not listed.
std::optional<Family> FamilyOf(const HfConfig& config);

}  // namespace blockscale
