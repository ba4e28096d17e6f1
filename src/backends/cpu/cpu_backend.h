// The MoE layer on a CPU: weights in tiles, decoded in registers, products of BF16 with FP32 sums.
// Bits depend on neither the number of threads nor what else is in the batch.
#pragma once

#include <string>

#include "moe/backend.h"

namespace blockscale {

struct CpuOptions {
  std::string kernel;  // "" for the fastest here; else its name
};

std::unique_ptr<Backend> MakeCpuBackend(CpuOptions options = {});

}  // namespace blockscale
