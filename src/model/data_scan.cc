#include "model/data_scan.h"

#include <algorithm>

namespace blockscale {
namespace {

constexpr uint64_t kChunkBytes = uint64_t{1} << 20;

class Scan {
 public:
  Scan(const Checkpoint& checkpoint, const Fp8Matrix& matrix)
      : checkpoint_(checkpoint), matrix_(matrix) {}

  std::vector<Finding> Run() {
    Result<std::vector<float>> scales = ReadScales(checkpoint_, matrix_);
    if (scales.ok())
      scales_ = std::move(*scales);
    else
      findings_.push_back({"scale", scales.status().message()});
    const uint64_t rows_at_once = std::max<uint64_t>(1, kChunkBytes / matrix_.columns);
    std::vector<std::byte> codes;
    for (uint64_t row = 0; row < matrix_.rows; row += rows_at_once) {
      const uint64_t rows = std::min(rows_at_once, matrix_.rows - row);
      codes.resize(rows * matrix_.columns);
      const Status status = checkpoint_.Read(matrix_.weight, row * matrix_.columns, codes);
      if (!status.ok()) {
        findings_.push_back({"unreadable-shard", status.message()});
        return std::move(findings_);
      }
      for (uint64_t i = 0; i < rows; ++i) Row(row + i, codes.data() + i * matrix_.columns);
    }
    Tell();
    return std::move(findings_);
  }

 private:
  void Row(uint64_t row, const std::byte* codes) {
    for (uint64_t column = 0; column < matrix_.columns; ++column) {
      const std::byte magnitude = codes[column] & std::byte{0x7F};
      if (magnitude == std::byte{0x7F} && nan_count_++ == 0) {
        nan_row_ = row;
        nan_column_ = column;
      }
    }
    if (scales_.empty()) return;
    for (uint64_t block = 0; block < matrix_.grid_columns; ++block) {
      const uint64_t cell = row / matrix_.block.rows * matrix_.grid_columns + block;
      if (scales_[cell] != 0) continue;
      const uint64_t begin = block * matrix_.block.columns;
      const uint64_t end = std::min(begin + matrix_.block.columns, matrix_.columns);
      const bool zero = std::all_of(codes + begin, codes + end, [](std::byte code) {
        return (code & std::byte{0x7F}) == std::byte{0};
      });
      if (!zero && zero_scales_++ == 0) zero_cell_ = cell;
    }
  }

  void Tell() {
    const std::string where =
        fmt::format("{}: tensor '{}'", matrix_.weight.shard->name, matrix_.weight.info->name);
    if (nan_count_ > 0)
      findings_.push_back({"nan-codes", fmt::format("{} holds {} NaN codes, the first at [{}, {}]",
                                                    where, nan_count_, nan_row_, nan_column_)});
    if (zero_scales_ > 0)
      findings_.push_back(
          {"scale", fmt::format("{}: scale [{}, {}] of '{}' is 0 over codes that are not", where,
                                zero_cell_ / matrix_.grid_columns,
                                zero_cell_ % matrix_.grid_columns, matrix_.scale.info->name)});
  }

  const Checkpoint& checkpoint_;
  const Fp8Matrix& matrix_;
  std::vector<float> scales_;
  std::vector<Finding> findings_;
  uint64_t nan_count_ = 0, nan_row_ = 0, nan_column_ = 0;
  uint64_t zero_scales_ = 0, zero_cell_ = 0;
};

}  // namespace

std::vector<Finding> ScanMatrix(const Checkpoint& checkpoint, const Fp8Matrix& matrix) {
  return Scan(checkpoint, matrix).Run();
}

}  // namespace blockscale
