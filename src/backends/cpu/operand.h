// A row as the kernels take it: BF16 values whose products with weight codes are exact, and the
// scales that do not fit into BF16 beside them.
//
//   bf16           the codes
//   mxfp8          code * 2^e, which BF16 holds
//   nvfp4          code * block scale, which BF16 holds (2 + 4 significant bits); global as row
//   scale int8-token, fp8-token   the codes; row scale fp8-token-128  the codes; group scales FP32
//   (recipe "exact")   three BF16 limbs whose sum is the value
//
// A group of MXFP8 whose 32 products with E2M1 could need more than 24 bits is split over two
// limbs: its sum is exact, whatever the order of addition, so that every instruction set gives the
// same bits. A row that is not finite, or beyond what this allows, is kept in FP32 ("plain").
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "moe/row_quant.h"

namespace blockscale::cpu {

inline constexpr size_t kMostLimbs = 3;

struct Operand {
  size_t limbs = 1;
  std::vector<uint16_t> bf16;         // [limbs][columns]
  std::vector<float> group_scales;    // [columns / 32], or empty
  std::vector<uint32_t> rest_groups;  // which groups have a rest, in order
  std::vector<uint16_t> rest;         // [rest_groups][32]
  float row_scale = 1;
  std::vector<float> plain;  // [columns], else empty: then nothing above counts
};

// Row `row` of quantised rows.
Operand OperandOf(const ScaledRows& rows, size_t row);
// A row of FP32 values.
Operand OperandOf(const float* values, size_t columns);

}  // namespace blockscale::cpu
