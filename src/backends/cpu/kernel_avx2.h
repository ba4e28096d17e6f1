// What kernel_choice.cc needs of the AVX2 kernels.
#pragma once

#include "backends/cpu/kernel.h"

namespace blockscale::cpu {

// [high and low bytes of the BF16 of the 4-bit codes, twice over]
extern uint8_t avx2_e2m1_bytes[2][32];
extern uint8_t avx2_int4_bytes[2][32];

// Without `run` for a format that has none. To be run only with AVX2 and FMA, after the tables are
// filled.
Kernel Avx2Kernel(const TileFormat& format);

}  // namespace blockscale::cpu
