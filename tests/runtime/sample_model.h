// A MiniMax-M2 of one layer and two experts as the converter leaves it, small enough to spoil by
// hand.
#pragma once

#include <string>
#include <vector>

#include "support/tensor_file.h"

namespace blockscale::testing {

using Tensors = std::vector<TestTensor>;

inline constexpr uint64_t kHidden = 8, kInner = 4, kHeads = 2, kHeadDim = 4, kExperts = 2,
                          kVocab = 4, kBlock = 4;
inline const std::string kW1 = "model.layers.0.block_sparse_moe.experts.1.w1";
inline const std::string kQ = "model.layers.0.self_attn.q_proj";

// config.json with this quantization_config; `more` is inserted: "\"key\":1,".
std::string ConfigText(const std::string& quantization, const std::string& more = "",
                       int layers = 1);

// The converter's own quantization_config, or one with other lists, type or format.
std::string Int8Quantization(
    const std::string& targets = R"(["Linear"])",
    const std::string& ignore =
        R"(["lm_head","model.layers.0.block_sparse_moe.gate","re:.*\\.gate$"])",
    const std::string& type = "int", const std::string& format = "int-quantized");

void AddInt8(Tensors& tensors, const std::string& module, uint64_t rows, uint64_t columns);
Tensors GoodTensors();
// The same as block-scaled FP8, blocks of kBlock x kBlock.
Tensors Fp8Tensors();

TestTensor& Find(Tensors& tensors, const std::string& name);  // throws when there is none
void Remove(Tensors& tensors, const std::string& name);

}  // namespace blockscale::testing
