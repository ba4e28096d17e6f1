// The MoE layer on a CPU: weights in tiles, decoded in registers, products of BF16 with FP32 sums.
// Bits depend on neither the number of threads nor what else is in the batch.
#pragma once

#include <string>

#include "moe/backend.h"

namespace blockscale {

struct CpuOptions {
  std::string
      kernel;  // a name of kKernelNames; "" for $BLOCKSCALE_CPU_KERNEL, else the fastest here
};

std::unique_ptr<Backend> MakeCpuBackend(CpuOptions options = {});

}  // namespace blockscale
