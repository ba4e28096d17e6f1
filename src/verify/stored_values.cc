#include "verify/stored_values.h"

#include <algorithm>
#include <cstring>

#include "verify/element_grid.h"

namespace blockscale {

uint64_t BlockWidthOf(const StoredMatrix& matrix) {
  return matrix.spec.block_columns == 0 ? matrix.columns : matrix.spec.block_columns;
}

Status ValueReader::Open() {
  if (!matrix_.global) return OkStatus();
  std::vector<std::byte> bytes(sizeof(float));
  BLOCKSCALE_RETURN_IF_ERROR(checkpoint_.Read(matrix_.global, 0, bytes));
  std::memcpy(&global_, bytes.data(), sizeof global_);
  return OkStatus();
}

float ValueReader::WithGlobal(float scale) const {
  switch (matrix_.global_kind) {
    case GlobalScale::Kind::kDivisor:
      return scale / global_;
    case GlobalScale::Kind::kMultiplier:
      return scale * global_;
    case GlobalScale::Kind::kNone:
      break;
  }
  return scale;
}

float ValueReader::SmallestScale() const {
  switch (matrix_.spec.scale) {
    case Format::kE8M0:
      return 0x1p-127f;
    case Format::kUE4M3:
      return WithGlobal(0x1p-9f);
    case Format::kFP16:
      return 0x1p-24f;
    default:
      return 0x1p-126f;
  }
}

// Row by row, as interleaved experts stand.
Status ValueReader::Read(uint64_t first, uint64_t count, DecodedRows* rows) {
  const uint64_t columns = matrix_.columns, width = BlockWidthOf(matrix_);
  const uint64_t grid = matrix_.spec.has_scales() ? (columns + width - 1) / width : 0;
  rows->codes.resize(count * columns);
  rows->values.resize(count * columns);
  rows->scales.assign(count * std::max<uint64_t>(grid, 1), 1.0f);
  for (uint64_t row = 0; row < count; ++row) {
    BLOCKSCALE_RETURN_IF_ERROR(ReadRow(first + row, grid, rows->scales.data() + row * grid));
    for (uint64_t column = 0; column < columns; ++column) {
      const double code = ValueAt(matrix_.spec.element, line_.data(), column);
      const float scale = grid == 0 ? 1.0f : rows->scales[row * grid + column / width];
      rows->codes[row * columns + column] = code;
      rows->values[row * columns + column] = static_cast<double>(static_cast<float>(code) * scale);
    }
  }
  return OkStatus();
}

Status ValueReader::ReadRow(uint64_t row, uint64_t grid, float* scales) {
  const uint64_t stored = matrix_.first_row + row * matrix_.row_step;
  line_.resize(matrix_.code_row_bytes());
  BLOCKSCALE_RETURN_IF_ERROR(checkpoint_.Read(matrix_.codes, stored * line_.size(), line_));
  if (grid == 0) return OkStatus();
  const uint64_t block_rows = matrix_.spec.block_rows;
  const uint64_t grid_row = block_rows == 0 ? 0 : block_rows == 1 ? stored : row / block_rows;
  scale_line_.resize(grid * matrix_.spec.scale_bytes());
  BLOCKSCALE_RETURN_IF_ERROR(
      checkpoint_.Read(matrix_.scales, grid_row * scale_line_.size(), scale_line_));
  for (uint64_t i = 0; i < grid; ++i) {
    const auto scale = static_cast<float>(ValueAt(matrix_.spec.scale, scale_line_.data(), i));
    scales[i] = WithGlobal(scale);
  }
  return OkStatus();
}

}  // namespace blockscale
