#include "model/family_tensors.h"

#include "model/minimax_m2.h"

namespace blockscale {

FamilyTensors TensorsOf(Family family, const ModelSize& size) {
  switch (family) {
    case Family::kMiniMaxM2:
      return {MiniMaxM2Tensors(size), MiniMaxM2Config(size), {}};
    case Family::kKimiK3:
      return KimiK3Tensors(size);
    case Family::kKimiK2:
      return KimiK2Tensors(size);
    case Family::kDeepSeekV3:
      return DeepSeekV3Tensors(size);
    case Family::kDeepSeekV4:
      return DeepSeekV4Tensors(size);
    case Family::kGptOss:
      return GptOssTensors(size);
    case Family::kQwen3Moe:
      return Qwen3MoeTensors(size);
    case Family::kGlmMoe:
      return GlmMoeTensors(size);
  }
  return {};
}

std::vector<std::pair<std::string, std::string>> SideFilesOf(Family family) {
  if (family == Family::kMiniMaxM2) return MiniMaxM2SideFiles();
  return {{"generation_config.json", "{\n  \"do_sample\": true,\n  \"temperature\": 1.0\n}\n"},
          {"tokenizer.json", "{\n  \"version\": \"1.0\",\n  \"stand_in\": true\n}\n"},
          {"tokenizer_config.json", "{\n  \"tokenizer_class\": \"StandIn\"\n}\n"}};
}

uint64_t WidthUnitOf(Family family) {
  switch (family) {
    case Family::kKimiK3:
      return 64;  // the latent width is half the hidden one, in groups of 32
    case Family::kKimiK2:
    case Family::kDeepSeekV4:
    case Family::kGptOss:
      return 32;
    case Family::kMiniMaxM2:
    case Family::kDeepSeekV3:
    case Family::kQwen3Moe:
    case Family::kGlmMoe:
      return 1;
  }
  return 1;
}

}  // namespace blockscale
