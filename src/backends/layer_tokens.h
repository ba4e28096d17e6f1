// Tokens, ids and weights of one call: from a safetensors file, or made up.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "moe/spec.h"

namespace blockscale {

struct LayerTokens {
  std::vector<float> hidden_states;  // [tokens][hidden]
  std::vector<int32_t> ids;          // [tokens][top_k]
  std::vector<float> weights;        // likewise
};

// RunLayerOptions::tokens says what the file holds. An error names the tensor and what it must be.
Result<LayerTokens> ReadTokens(FileSystem& files, const std::string& path, const MoeSpec& spec);

// `output` [tokens, hidden] of a file that RunLayer wrote; refuses ids that are not `ids`.
Result<std::vector<float>> ReadOutput(FileSystem& files, const std::string& path,
                                      const MoeSpec& spec, const std::vector<int32_t>& ids);

// Normal numbers, rounded to BF16, and sigmoid routing of random logits.
Result<LayerTokens> RandomTokens(const MoeSpec& spec, size_t tokens, uint64_t seed);

}  // namespace blockscale
