// quantization_config as compressed-tensors reads it: strictly (an unknown key is an error there),
// with the defaults that it fills in. Source: docs/formats.md, "compressed-tensors, int-quantized".
#pragma once

#include <cstdint>
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
  std::optional<int64_t> group_size;                           // -1, or columns of a group
  std::optional<std::pair<int64_t, int64_t>> block_structure;  // rows, columns; strategy block only

  bool operator==(const QuantizationArgs&) const = default;
};

struct QuantizationGroup {
  std::string name;
  std::string format;  // the group's own, or the config's: vLLM prefers the former
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

// An error says what compressed-tensors itself would refuse: pydantic models that forbid unknown
// keys, and its validators of strategy, group_size, block_structure and dynamic.
Result<CompressedTensorsConfig> ParseCompressedTensorsConfig(const nlohmann::ordered_json& json);

// Both 8 bits, weights per tensor or channel, static and symmetric, activations per token and
// dynamic: what vLLM's `_is_dynamic_token_w8a8` asks. It does not ask for integers.
bool IsDynamicTokenW8A8(const QuantizationGroup& group);

// 8-bit floats for weights and activations, weights static and symmetric per tensor, channel or
// block, activations dynamic. vLLM asks this before IsDynamicTokenW8A8.
bool IsDynamicFp8W8A8(const QuantizationGroup& group);

// The formats under which vLLM reads input_activations at all; under any other it drops them.
bool IsActivationFormat(const std::string& format);

}  // namespace blockscale
