#include "checkpoint/stored_rows.h"

#include <cmath>
#include <cstring>
#include <span>

#include "numeric/block_quant.h"

namespace blockscale {
namespace {

std::string Where(const TensorRef& tensor) {
  return fmt::format("{}: tensor '{}'", tensor.shard->file->path(), tensor.info->name);
}

// Reads `count` rows of `row_bytes` that stand `step` rows apart.
Status ReadStepped(const Checkpoint& checkpoint, const TensorRef& tensor, uint64_t first,
                   uint64_t step, uint64_t count, uint64_t row_bytes, std::vector<std::byte>* out) {
  out->resize(count * row_bytes);
  if (step == 1) return checkpoint.Read(tensor, first * row_bytes, *out);
  std::vector<std::byte> spread(((count - 1) * step + 1) * row_bytes);
  BLOCKSCALE_RETURN_IF_ERROR(checkpoint.Read(tensor, first * row_bytes, spread));
  for (uint64_t row = 0; row < count; ++row)
    std::memcpy(out->data() + row * row_bytes, spread.data() + row * step * row_bytes, row_bytes);
  return OkStatus();
}

}  // namespace

Status ReadStoredRows(const Checkpoint& checkpoint, const StoredMatrix& matrix,
                      const GlobalScale& global, uint64_t first, uint64_t count, StoredRows* rows) {
  const QuantSpec& spec = matrix.spec;
  BLOCKSCALE_RETURN_IF_ERROR(
      ReadStepped(checkpoint, matrix.codes, matrix.first_row + first * matrix.row_step,
                  matrix.row_step, count, matrix.code_row_bytes(), &rows->codes));
  if (!spec.has_scales()) return OkStatus();
  const uint64_t grid_first = spec.grid_row(first);
  const uint64_t grid_count = spec.grid_row(first + count - 1) - grid_first + 1;
  BLOCKSCALE_RETURN_IF_ERROR(
      ReadStepped(checkpoint, matrix.scales,
                  matrix.row_step == 1 ? grid_first + matrix.first_row
                                       : matrix.first_row + first * matrix.row_step,
                  matrix.row_step, grid_count, matrix.scale_row_bytes(), &rows->scales));
  const uint64_t columns = spec.grid_columns(matrix.columns);
  rows->effective.resize(grid_count * columns);
  DecodeScales(spec.scale, global, rows->scales.data(), rows->effective.size(),
               rows->effective.data());
  for (size_t i = 0; i < rows->effective.size(); ++i) {
    const float scale = rows->effective[i];
    if (std::isfinite(scale) && scale >= 0) continue;
    return InvalidInput(
        "{}: scale [{}, {}] is {}; scales must be finite and not negative: the "
        "checkpoint is damaged or was quantised wrongly",
        Where(matrix.scales), grid_first + i / columns, i % columns, scale);
  }
  return OkStatus();
}

Result<GlobalScale> ReadGlobalScale(const Checkpoint& checkpoint, const StoredMatrix& matrix) {
  if (!matrix.global) return GlobalScale{};
  float value = 0;
  BLOCKSCALE_RETURN_IF_ERROR(
      checkpoint.Read(matrix.global, 0, std::as_writable_bytes(std::span(&value, 1))));
  if (!(std::isfinite(value) && value > 0))
    return InvalidInput("{}: is {}; a global scale must be finite and positive",
                        Where(matrix.global), value);
  return GlobalScale{matrix.global_kind, value};
}

}  // namespace blockscale
