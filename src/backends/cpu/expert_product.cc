#include "backends/cpu/expert_product.h"

namespace blockscale::cpu {
namespace {

void ScaleRows(const TileMatrix& matrix, size_t block, float operand_scale, float* out) {
  for (size_t r = 0; r < kTileRows; ++r) {
    const float own = matrix.row_scales ? matrix.row_scales[block * kTileRows + r] : 1;
    out[r] *= own * operand_scale;
  }
}

void AddRest(const TileMatrix& matrix, const Kernel& kernel, size_t block, const Operand& operand,
             float* out) {
  float rest[kTileRows];
  kernel.run_sparse(
      matrix, block,
      {operand.rest.data(), operand.rest_groups.data(), operand.rest_groups.size(), rest});
  for (size_t r = 0; r < kTileRows; ++r) out[r] += rest[r];
}

}  // namespace

void MultiplyBlock(const TileMatrix& matrix, const Kernel& kernel, size_t block,
                   const std::vector<const Operand*>& operands, ProductScratch* scratch,
                   float* out) {
  size_t limbs = 0;
  for (const Operand* operand : operands) limbs += operand->limbs;
  scratch->sums.resize(limbs * kTileRows);
  scratch->rows.clear();
  scratch->int8_rows.clear();
  float* sums = scratch->sums.data();
  for (size_t j = 0; j < operands.size(); ++j) {
    const Operand& operand = *operands[j];
    if (!operand.plain.empty()) continue;
    const float* scales = operand.group_scales.empty() ? nullptr : operand.group_scales.data();
    if (!operand.int8.empty()) {
      scratch->int8_rows.push_back({operand.int8.data(), operand.starts.data(), scales,
                                    operand.whole_start, out + j * kTileRows});
      continue;
    }
    for (size_t l = 0; l < operand.limbs; ++l) {
      float* to = l == 0 ? out + j * kTileRows : sums + scratch->rows.size() * kTileRows;
      scratch->rows.push_back({operand.bf16.data() + l * matrix.columns, scales, to});
    }
  }
  if (!scratch->rows.empty()) kernel.run(matrix, block, scratch->rows.data(), scratch->rows.size());
  if (!scratch->int8_rows.empty())
    kernel.run_int8(matrix, block, scratch->int8_rows.data(), scratch->int8_rows.size());
  size_t row = 0;
  for (size_t j = 0; j < operands.size(); ++j) {
    float* to = out + j * kTileRows;
    if (!operands[j]->plain.empty()) {
      RunBlockPlain(matrix, block, operands[j]->plain.data(), to);
    } else if (operands[j]->int8.empty()) {
      for (size_t l = 1; l < operands[j]->limbs; ++l)
        for (size_t r = 0; r < kTileRows; ++r) to[r] += scratch->rows[row + l].out[r];
      row += operands[j]->limbs;
      if (!operands[j]->rest_groups.empty()) AddRest(matrix, kernel, block, *operands[j], to);
    }
    ScaleRows(matrix, block, operands[j]->plain.empty() ? operands[j]->row_scale : 1, to);
  }
}

}  // namespace blockscale::cpu
