// quantization_config as compressed-tensors reads it: strictly (an unknown key is an error there),
// with the defaults that it fills in. Source: docs/formats.md, "compressed-tensors, int-quantized".
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace blockscale {

struct QuantizationArgs {
  int num_bits = 8;
  std::string type = "int";  // int, float
  bool symmetric = true;
  std::string strategy;           // tensor, channel, group, block, token, tensor_group, attn_head
  std::string dynamic = "false";  // false, true, local
};

struct QuantizationGroup {
  std::string name;
  std::vector<std::string> targets;
  std::optional<QuantizationArgs> weights;
  std::optional<QuantizationArgs> input_activations;
};

struct CompressedTensorsConfig {
  std::string format;
  std::vector<QuantizationGroup> groups;
  std::vector<std::string> ignore;
  std::vector<std::string> remarks;  // accepted today, but known to break some version
};

// An error says what compressed-tensors itself would refuse.
Result<CompressedTensorsConfig> ParseCompressedTensorsConfig(const nlohmann::ordered_json& json);

// Both 8 bits, weights per tensor or channel, static and symmetric, activations per token and
// dynamic: what vLLM's `_is_dynamic_token_w8a8` asks. It does not ask for integers.
bool IsDynamicTokenW8A8(const QuantizationGroup& group);

}  // namespace blockscale
