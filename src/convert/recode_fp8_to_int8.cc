#include "convert/recode_fp8_to_int8.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

namespace blockscale {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{1} << 20;

// "how many more NaN codes are there": only on the way to an error, so that one pass suffices.
Result<uint64_t> CountNanCodes(const Checkpoint& source, const StoredMatrix& matrix) {
  std::vector<std::byte> buffer(kPieceBytes);
  const uint64_t total = matrix.codes.info->bytes();
  uint64_t count = 0;
  for (uint64_t offset = 0; offset < total; offset += kPieceBytes) {
    const std::span<std::byte> piece(buffer.data(), std::min(kPieceBytes, total - offset));
    BLOCKSCALE_RETURN_IF_ERROR(source.Read(matrix.codes, offset, piece));
    for (const std::byte code : piece) count += (code & std::byte{0x7F}) == std::byte{0x7F};
  }
  return count;
}

Status FaultError(const Checkpoint& source, const StoredMatrix& matrix, uint64_t first,
                  const RecodeBuffers& buffers, const RowFault& fault) {
  const std::string where =
      fmt::format("{}: tensor '{}' [{}, {}]", matrix.codes.shard->file->path(),
                  matrix.codes.info->name, first + fault.row, fault.column);
  const unsigned code =
      std::to_integer<unsigned>(buffers.stored.codes[fault.row * matrix.columns + fault.column]);
  const std::string& scale = matrix.scales.info->name;
  switch (fault.kind) {
    case RowFault::Kind::kNanCode: {
      BLOCKSCALE_ASSIGN_OR_RETURN(const uint64_t count, CountNanCodes(source, matrix));
      return InvalidInput(
          "{} is the NaN code 0x{:02X}, the first of {} in this tensor; weights must "
          "be numbers: get the checkpoint again from its source",
          where, code, count);
    }
    case RowFault::Kind::kZeroScale:
      return InvalidInput(
          "{} is code 0x{:02X}, but the scale of its block in '{}' is 0; a zero scale "
          "may stand only over zero codes: the checkpoint is damaged",
          where, code, scale);
    case RowFault::Kind::kOverflow:
      return InvalidInput(
          "{} is code 0x{:02X}, and times the scale of its block in '{}' it is larger "
          "than FP32 can hold (3.4e38): the scale is wrong",
          where, code, scale);
    case RowFault::Kind::kScaleUnderflow:
      return InvalidInput(
          "{}: the largest value of this row is so small that its INT8 scale would be "
          "below 1.2e-38, where FP32 loses precision: the scales in '{}' are wrong",
          where, scale);
    case RowFault::Kind::kNone:
      break;
  }
  return OkStatus();
}

// What the kernel has measured, in steps of the row's scale, as a loss in values.
RowsLoss LossOf(const RowQuality& quality, double scale) {
  return {.sum_squares = scale * scale * quality.sum_squares,
          .sum_squared_errors = scale * scale * quality.sum_squared_errors,
          .largest_error = 2.0f * quality.max_error,
          .zero_rows = quality.zero,
          .inexact_blocks = quality.sum_squared_errors > 0};
}

// Codes of 127 whose value lies beyond it: with a scale of absmax / 127.5 the largest may. (-128
// has room for all.)
uint64_t CountClipped(const OutputMatrix& matrix, uint64_t first, uint64_t row,
                      const RecodeBuffers& buffers) {
  const StoredMatrix& from = *matrix.sources.front();
  const uint64_t columns = matrix.columns, grid_columns = from.spec.grid_columns(columns);
  const uint64_t width = from.spec.block_columns == 0 ? columns : from.spec.block_columns;
  const uint64_t grid_row = from.spec.grid_row(first + row) - from.spec.grid_row(first);
  uint64_t clipped = 0;
  for (uint64_t column = 0; column < columns; ++column) {
    if (buffers.codes[row * columns + column] != std::byte{127}) continue;
    const auto code = std::to_integer<uint8_t>(buffers.stored.codes[row * columns + column]);
    const float value =
        E4M3::Decode(code) * buffers.stored.effective[grid_row * grid_columns + column / width];
    // The margin is for the rounding of the scale, as in `verify`.
    clipped += value > 127.0 * buffers.row_scales[row] * (1 + 1e-6);
  }
  return clipped;
}

}  // namespace

Status RecodeFp8ToInt8(const Checkpoint& source, const OutputMatrix& matrix, uint64_t first,
                       uint64_t count, RecodeBuffers* buffers) {
  const StoredMatrix& from = *matrix.sources.front();
  const uint64_t columns = matrix.columns;
  const uint64_t block_rows = from.spec.block_rows == 0 ? from.rows : from.spec.block_rows;
  const uint64_t block_columns = from.spec.block_columns == 0 ? columns : from.spec.block_columns;
  buffers->codes.resize(count * columns);
  buffers->row_scales.resize(count);
  buffers->quality.resize(count);
  const RowFault fault = ConvertFp8RowsToInt8(
      {.codes = reinterpret_cast<const uint8_t*>(buffers->stored.codes.data()),
       .rows = count,
       .columns = columns,
       .first_row = first % block_rows,  // the scales begin at this row's block
       .scales = buffers->stored.effective.data(),
       .grid_columns = from.spec.grid_columns(columns),
       .block_rows = block_rows,
       .block_columns = block_columns},
      matrix.encode.int8_range,
      {.codes = reinterpret_cast<int8_t*>(buffers->codes.data()),
       .row_scales = buffers->row_scales.data()},
      buffers->quality.data());
  if (fault.kind != RowFault::Kind::kNone) return FaultError(source, from, first, *buffers, fault);
  buffers->scales.resize(count * sizeof(float));
  std::memcpy(buffers->scales.data(), buffers->row_scales.data(), buffers->scales.size());
  for (uint64_t row = 0; row < count; ++row) {
    buffers->losses.push_back(LossOf(buffers->quality[row], buffers->row_scales[row]));
    if (matrix.encode.int8_range == Int8Range::k128)
      buffers->losses.back().clipped = CountClipped(matrix, first, row, *buffers);
  }
  return OkStatus();
}

}  // namespace blockscale
