#include "moe/backend.h"

#include <cstring>

#include "base/status.h"
#include "moe/routing.h"

namespace blockscale {

Status CheckCall(const MoeSpec& spec, const LayerCall& call) {
  const ScaledRows& inputs = *call.inputs;
  if (inputs.scheme != spec.inputs || inputs.columns != spec.hidden)
    return InvalidInput("inputs are {} of {} columns, the layer takes {} of {}",
                        NameOf(inputs.scheme), inputs.columns, NameOf(spec.inputs), spec.hidden);
  const size_t slots = inputs.rows * spec.top_k;
  if (inputs.codes.size() != inputs.rows * inputs.code_bytes() ||
      inputs.scales.size() != inputs.rows * inputs.scale_bytes())
    return InvalidInput("inputs hold {} bytes of codes and {} of scales; {} rows need {} and {}",
                        inputs.codes.size(), inputs.scales.size(), inputs.rows,
                        inputs.rows * inputs.code_bytes(), inputs.rows * inputs.scale_bytes());
  if (call.ids.size() != slots || call.weights.size() != slots)
    return InvalidInput("{} ids and {} weights for {} tokens of {} slots", call.ids.size(),
                        call.weights.size(), inputs.rows, spec.top_k);
  return CheckIds(call.ids, spec.top_k, spec.experts);
}

size_t OutputRowBytes(const MoeSpec& spec) {
  return size_t{spec.hidden} * (spec.output == OutputType::kF32 ? 4 : 2);
}

void StoreOutput(OutputType type, const float* values, size_t count, std::byte* out) {
  if (type == OutputType::kF32) {
    std::memcpy(out, values, count * sizeof(float));
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    const uint16_t code = type == OutputType::kBf16 ? BF16::Encode(values[i], Overflow::kIeee)
                                                    : FP16::Encode(values[i], Overflow::kIeee);
    std::memcpy(out + 2 * i, &code, 2);
  }
}

void LoadOutput(OutputType type, const std::byte* stored, size_t count, float* values) {
  if (type == OutputType::kF32) {
    std::memcpy(values, stored, count * sizeof(float));
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    uint16_t code = 0;
    std::memcpy(&code, stored + 2 * i, 2);
    values[i] = type == OutputType::kBf16 ? BF16::Decode(code) : FP16::Decode(code);
  }
}

}  // namespace blockscale
