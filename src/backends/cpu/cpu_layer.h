// A prepared layer on the CPU: two passes over the weights of the experts that the tokens chose.
#pragma once

#include <memory>

#include "backends/cpu/kernel.h"
#include "backends/cpu/packed_layer.h"
#include "moe/backend.h"

namespace blockscale::cpu {

std::unique_ptr<PreparedLayer> MakeCpuLayer(const MoeSpec& spec, PackedLayer packed,
                                            const Kernel& kernel);

}  // namespace blockscale::cpu
