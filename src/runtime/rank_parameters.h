// The parameters of a module as one rank of a tensor-parallel group holds them.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "runtime/disk_check.h"
#include "runtime/module_tree.h"

namespace blockscale {

// "w13_weight int8 [256, 768, 3072]", "w13_weight_scale f32 [256, 768, 1]", ... of `module` on one
// of `tp` ranks, in the order (experts,) rows, columns; sizes from the tensors on disk. q, k, v and
// gate, up are stacked along rows and split along them, key-value heads repeated when there are
// fewer than ranks; o_proj and down_proj are split along columns, their row scales on every rank;
// gates are whole on every rank; the vocabulary is padded to a multiple of 64 and split.
std::vector<std::string> RankParameters(const Checkpoint& checkpoint, const RuntimeModule& module,
                                        const MethodChoice& method, uint64_t tp);

// What vLLM pads a vocabulary to.
uint64_t PaddedVocabulary(uint64_t rows);

}  // namespace blockscale
