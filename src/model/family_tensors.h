// The tensors and config of a family's checkpoints: what `synth` writes. One file a family; each
// says where its names come from. Shapes follow ModelSize; values are synth_values.h's business.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/safetensors.h"
#include "model/families.h"
#include "model/model_size.h"

namespace blockscale {

struct FamilyTensors {
  // In the order of the layers; scales follow their matrix. Offsets are not set.
  std::vector<TensorInfo> tensors;
  nlohmann::ordered_json config;                      // config.json
  std::map<std::string, std::vector<int64_t>> fixed;  // tensors whose numbers are not made up
};

FamilyTensors KimiK3Tensors(const ModelSize& size);
FamilyTensors KimiK2Tensors(const ModelSize& size);
FamilyTensors DeepSeekV3Tensors(const ModelSize& size);
FamilyTensors DeepSeekV4Tensors(const ModelSize& size);
FamilyTensors GptOssTensors(const ModelSize& size);
FamilyTensors Qwen3MoeTensors(const ModelSize& size);
FamilyTensors GlmMoeTensors(const ModelSize& size);

// Of any family.
FamilyTensors TensorsOf(Family family, const ModelSize& size);

// The files beside the weights: name and text.
std::vector<std::pair<std::string, std::string>> SideFilesOf(Family family);

// What hidden and intermediate sizes must be multiples of in the family's scheme.
uint64_t WidthUnitOf(Family family);

}  // namespace blockscale
