// A row as the kernels take it: BF16 values whose products with weight codes are exact, and the
// scales that do not fit into BF16 beside them.
//
//   bf16           the codes
//   mxfp8          code * 2^e, which BF16 holds
//   nvfp4          code * block scale, which BF16 holds (2 + 4 significant bits); global as row
//   scale int8-token, fp8-token   the codes; row scale
//   int8-32        the codes; group scales fp8-token-128  the codes; group scales FP32
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
  std::vector<int8_t> int8;     // [columns] instead of bf16: codes at Int8Places
  std::vector<int32_t> starts;  // [columns / 32], and their sum:
  int32_t whole_start = 0;
  std::vector<float> plain;  // [columns], else empty: then nothing above counts
};

// Row `row` of quantised rows, as BF16.
Operand OperandOf(const ScaledRows& rows, size_t row);
// A row of INT8 codes (int8-token, int8-32) for Int8Kernel with weights of `element`; as BF16 when
// a scale is not finite.
Operand Int8OperandOf(const ScaledRows& rows, size_t row, Format element);
// Where an Int8Kernel wants column `column`: a line's bytes hold columns 0, 2, 1, 3, and nibbles 0,
// 4, 1, 5 in their low halves, 2, 6, 3, 7 in their high ones.
size_t Int8Place(Format element, size_t column);
// A row of FP32 values.
Operand OperandOf(const float* values, size_t columns);

}  // namespace blockscale::cpu
