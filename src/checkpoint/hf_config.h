// config.json of a Hugging Face checkpoint: the few fields that blockscale reads, and the whole
// document, in order, so that what is not understood is kept.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace blockscale {

inline constexpr char kConfigFileName[] = "config.json";
inline constexpr uint64_t kMaxConfigBytes = 64'000'000;

struct BlockSize {
  uint64_t rows = 0;
  uint64_t columns = 0;
};

// `quantization_config`, wherever it stands (top level, text_config, or compression_config).
struct QuantizationConfig {
  std::string quant_method;             // "fp8", "compressed-tensors", ...; may be empty
  std::string format;                   // compressed-tensors' "int-quantized", or ""
  std::optional<BlockSize> block_size;  // weight_block_size, or block_structure
  std::vector<std::string>
      json_path;  // keys from the root, such as {"text_config", "quantization_config"}
};

struct HfConfig {
  nlohmann::ordered_json json;  // the whole document, order kept
  std::string model_type;       // "minimax_m2", or ""
  std::vector<std::string> architectures;
  std::optional<QuantizationConfig> quantization;

  // A whole number at the top level or in text_config; nullopt when absent or of another type.
  std::optional<uint64_t> Number(std::string_view key) const;
  // The quantization_config object itself; the CHECK is for callers that did not ask first.
  const nlohmann::ordered_json& quantization_json() const;
};

// Refuses what is not a JSON object, and fields of a type or value that they cannot have (a block
// size that is not two positive numbers below 2^31).
Result<HfConfig> ParseHfConfig(std::string_view json, const std::string& file);

}  // namespace blockscale
