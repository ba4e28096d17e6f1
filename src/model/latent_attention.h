// Multi-head latent attention and dense MLPs, which the DeepSeek-V3 line of models shares.
#pragma once

#include <functional>
#include <string>

#include "model/model_size.h"

namespace blockscale {

// Adds one matrix [rows, columns] in the family's scheme.
using AddMatrix = std::function<void(const std::string& module, uint64_t rows, uint64_t columns)>;

// q_a_proj, q_b_proj, kv_a_proj_with_mqa, kv_b_proj, o_proj under `prefix`; ranks are multiples of
// 128 near half the hidden width, and 64 columns rotate.
void AddLatentAttention(const ModelSize& size, const std::string& prefix, const AddMatrix& add);

// gate_proj, up_proj and down_proj.
void AddMlp(const std::string& prefix, uint64_t hidden, uint64_t intermediate,
            const AddMatrix& add);

uint64_t QueryRank(const ModelSize& size);
uint64_t KeyValueRank(const ModelSize& size);
inline constexpr uint64_t kRotated = 64;

}  // namespace blockscale
