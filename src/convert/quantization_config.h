// config.json of the result: the source's, with quantization_config replaced by what the dialect's
// runtimes need for the schemes that the output holds. Source of the fields: docs/formats.md,
// "Configs".
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/hf_config.h"
#include "convert/plan.h"

namespace blockscale {

inline constexpr char kModelOptConfigName[] = "hf_quant_config.json";

// Modules that are not quantised and would otherwise match the target "Linear": lm_head, router
// gates and every other plain linear weight. Exact names, and "re:.*\.gate$" where there are gates:
// Transformers renames them (block_sparse_moe.gate became mlp.gate), vLLM never asks for them.
// Never a pattern that could match gate_proj.
std::vector<std::string> IgnoreList(const ConversionPlan& plan);

// The quantization_config object for the plan's dialect; null when nothing is quantised.
nlohmann::ordered_json QuantizationConfigOf(const ConversionPlan& plan);

// The text of the new config.json: every other field kept, in order. The source's own
// quantization_config stays where its quantised tensors all do.
std::string RewriteConfig(const HfConfig& source, const ConversionPlan& plan);

// ModelOpt's second file, which older runtimes read; "" for other dialects.
std::string ModelOptConfig(const ConversionPlan& plan);

}  // namespace blockscale
