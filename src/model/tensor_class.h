// What a tensor is for, from its name alone, in the spellings that Hugging Face models use.
#pragma once

#include <optional>
#include <string_view>

#include "base/enum_list.h"

namespace blockscale {

// (enumerator, id, name). Scales and biases belong to the class of their matrix.
#define BLOCKSCALE_TENSOR_CLASSES(X)                                                     \
  X(kExperts, 0, "experts")     /* w1/w2/w3, gate_proj/up_proj/down_proj of an expert */ \
  X(kAttention, 1, "attention") /* q/k/v/o projections, MLA's latent projections */      \
  X(kRouter, 2, "router")       /* the gate of an MoE layer and its correction bias */   \
  X(kEmbedding, 3, "embedding") /* embed_tokens and lm_head */                           \
  X(kNorm, 4, "norm")                                                                    \
  X(kOther, 5, "other")

BLOCKSCALE_ENUM_LIST(TensorClass, BLOCKSCALE_TENSOR_CLASSES)

TensorClass ClassOf(std::string_view tensor_name);

}  // namespace blockscale
