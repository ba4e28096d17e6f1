#include "backends/cpu/expert_product.h"

namespace blockscale::cpu {
namespace {

void ScaleRows(const TileMatrix& matrix, size_t block, float operand_scale, float* out) {
  for (size_t r = 0; r < kTileRows; ++r) {
    const float own = matrix.row_scales ? matrix.row_scales[block * kTileRows + r] : 1;
    out[r] *= own * operand_scale;
  }
}

}  // namespace

void MultiplyBlock(const TileMatrix& matrix, BlockKernel kernel, size_t block,
                   const std::vector<const Operand*>& operands, ProductScratch* scratch,
                   float* out) {
  size_t limbs = 0;
  for (const Operand* operand : operands) limbs += operand->limbs;
  scratch->sums.resize(limbs * kTileRows);
  scratch->rows.clear();
  float* sums = scratch->sums.data();
  for (size_t j = 0; j < operands.size(); ++j) {
    const Operand& operand = *operands[j];
    if (!operand.plain.empty()) continue;
    const float* scales = operand.group_scales.empty() ? nullptr : operand.group_scales.data();
    for (size_t l = 0; l < operand.limbs; ++l) {
      float* to = l == 0 ? out + j * kTileRows : sums + scratch->rows.size() * kTileRows;
      scratch->rows.push_back({operand.bf16.data() + l * matrix.columns, scales, to});
    }
  }
  if (!scratch->rows.empty()) kernel(matrix, block, scratch->rows.data(), scratch->rows.size());
  size_t row = 0;
  for (size_t j = 0; j < operands.size(); ++j) {
    float* to = out + j * kTileRows;
    if (!operands[j]->plain.empty()) {
      RunBlockPlain(matrix, block, operands[j]->plain.data(), to);
    } else {
      for (size_t l = 1; l < operands[j]->limbs; ++l)
        for (size_t r = 0; r < kTileRows; ++r) to[r] += scratch->rows[row + l].out[r];
      row += operands[j]->limbs;
    }
    ScaleRows(matrix, block, operands[j]->plain.empty() ? operands[j]->row_scale : 1, to);
  }
}

}  // namespace blockscale::cpu
