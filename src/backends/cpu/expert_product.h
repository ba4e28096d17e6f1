// One block of 64 rows of a matrix times the operands of an expert's slots, whatever they are made
// of: limbs are added up, rows kept in FP32 go their own way, row scales are applied.
#pragma once

#include <vector>

#include "backends/cpu/kernel.h"

namespace blockscale::cpu {

// Reused by one thread from block to block.
struct ProductScratch {
  std::vector<float> sums;
  std::vector<KernelRow> rows;
  std::vector<Int8Row> int8_rows;
};

// out[j * 64 + r]: FP32 sum of row 64 * block + r with operand j, with every scale, without bias.
void MultiplyBlock(const TileMatrix& matrix, const Kernel& kernel, size_t block,
                   const std::vector<const Operand*>& operands, ProductScratch* scratch,
                   float* out);

}  // namespace blockscale::cpu
