// MiniMax-M2: the dimensions, tensors and config of its checkpoints, as M2.7 ships them.
// Source: docs/formats.md, "MiniMax-M2".
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "model/model_size.h"

namespace blockscale {

// M2.7: 62 layers, 256 experts, 3072 x 1536.
ModelSize MiniMaxM27Size();

// Every tensor in the order of the layers, embedding first, lm_head last; an FP8 matrix is followed
// by its weight_scale_inv. Offsets are not set.
std::vector<TensorInfo> MiniMaxM2Tensors(const ModelSize& size);

// config.json with every field that M2.7 has.
nlohmann::ordered_json MiniMaxM2Config(const ModelSize& size);

// The files beside the weights: name and text. The .py files and the tokeniser are stand-ins that
// say so: they have the names, not the content, of the real ones.
std::vector<std::pair<std::string, std::string>> MiniMaxM2SideFiles();

}  // namespace blockscale
