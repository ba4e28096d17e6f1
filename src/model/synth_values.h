// The numbers of synthetic tensors: every byte is a function of seed, tensor name and position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "checkpoint/safetensors.h"

namespace blockscale {

// Fills `out` with the bytes of `tensor` from byte `offset` on. `offset` and the size of `out` are
// multiples of 64, but for the tensor's end.
void FillSynthetic(uint64_t seed, const TensorInfo& tensor, uint64_t offset,
                   std::span<std::byte> out);

}  // namespace blockscale
