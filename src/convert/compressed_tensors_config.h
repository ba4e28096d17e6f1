// config.json of the result: the source's, with quantization_config replaced by what
// compressed-tensors and vLLM need for INT8 weights (one scale a row) and dynamic INT8 activations
// (one scale a token). Source of the fields: docs/formats.md, "compressed-tensors, int-quantized".
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/hf_config.h"
#include "convert/plan.h"

namespace blockscale {

// Modules that stay unquantised and would otherwise match the target "Linear": lm_head, router
// gates and every other kept two-dimensional weight that is no embedding and no norm. Exact names,
// and "re:.*\.gate$" where there are gates: Transformers renames them (block_sparse_moe.gate became
// mlp.gate), vLLM never asks for them. Never a pattern that could match gate_proj.
std::vector<std::string> IgnoreList(const ConversionPlan& plan);

// The quantization_config object.
nlohmann::ordered_json Int8QuantizationConfig(const std::vector<std::string>& ignore);

// The text of the new config.json: every other field kept, in order.
std::string RewriteConfig(const HfConfig& source, const std::vector<std::string>& ignore);

}  // namespace blockscale
