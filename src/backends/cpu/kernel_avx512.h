// What kernel_choice.cc needs of the AVX-512 kernels.
#pragma once

#include "backends/cpu/kernel.h"

namespace blockscale::cpu {

// BF16 of the 4-bit codes, twice over.
extern uint16_t avx512_e2m1_table[32];
extern uint16_t avx512_int4_table[32];
// [high and low bytes of the BF16 of codes 0..127, then of 128..255]
extern uint8_t avx512_e4m3_bytes[4][128];
extern uint8_t avx512_int8_bytes[4][128];

// [twice E2M1 + 12], [INT4 + 8], both four times over
extern uint8_t avx512_e2m1_unsigned[64];
extern uint8_t avx512_int4_unsigned[64];

// Null for a format without one. To be run only with AVX-512 VNNI too.
Int8Kernel Avx512Int8Kernel(const TileFormat& format);

// Without `run` for a format that has none. To be run only with AVX-512 F, BW, VL, DQ, VBMI and
// BF16, after the tables are filled.
Kernel Avx512Kernel(const TileFormat& format);

}  // namespace blockscale::cpu
