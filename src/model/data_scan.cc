#include "model/data_scan.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace blockscale {
namespace {

constexpr uint64_t kChunkBytes = uint64_t{1} << 20;

std::string Where(const TensorRef& tensor) {
  return fmt::format("{}: tensor '{}'", tensor.shard->name, tensor.info->name);
}

// Calls visit(offset, bytes) for one chunk after the other.
template <typename Visit>
std::vector<Finding> ForChunks(const Checkpoint& checkpoint, const TensorRef& tensor, Visit visit) {
  const uint64_t bytes = tensor.info->bytes();
  std::vector<std::byte> chunk(std::min(kChunkBytes, bytes));
  for (uint64_t offset = 0; offset < bytes; offset += chunk.size()) {
    chunk.resize(std::min<uint64_t>(chunk.size(), bytes - offset));
    const Status status = checkpoint.Read(tensor, offset, chunk);
    if (!status.ok()) return {{"unreadable-shard", status.message()}};
    visit(offset, std::span<const std::byte>(chunk));
  }
  return {};
}

bool IsNan(std::byte code) { return (code & std::byte{0x7F}) == std::byte{0x7F}; }

// "[2, 7]" of element `index` of a tensor.
std::string Place(const std::vector<uint64_t>& shape, uint64_t index) {
  std::vector<uint64_t> place(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    place[i] = index % shape[i];
    index /= shape[i];
  }
  return ShapeText(place);
}

// Counts NaN codes over chunks that come in order.
class NanCount {
 public:
  void Add(uint64_t offset, std::span<const std::byte> codes) {
    // Counting without a branch is one pass of SIMD; the place is only looked for when needed.
    const auto count = static_cast<uint64_t>(std::count_if(codes.begin(), codes.end(), IsNan));
    if (count > 0 && count_ == 0)
      first_ = offset + static_cast<uint64_t>(std::find_if(codes.begin(), codes.end(), IsNan) -
                                              codes.begin());
    count_ += count;
  }

  void Tell(const TensorRef& tensor, std::vector<Finding>* findings) const {
    if (count_ == 0) return;
    findings->push_back(
        {"nan-codes", fmt::format("{} holds {} NaN codes, the first at {}", Where(tensor), count_,
                                  Place(tensor.info->shape, first_))});
  }

 private:
  uint64_t count_ = 0, first_ = 0;
};

// Looks for a block whose scale is zero over codes that are not.
class ZeroScales {
 public:
  ZeroScales(const Fp8Matrix& matrix, std::vector<float> scales)
      : matrix_(matrix),
        scales_(std::move(scales)),
        any_(std::find(scales_.begin(), scales_.end(), 0.0f) != scales_.end()) {}

  // Walks the chunk in pieces that lie in one row of one block.
  void Add(uint64_t offset, std::span<const std::byte> codes) {
    if (!any_ || found_) return;
    while (!codes.empty()) {
      const uint64_t row = offset / matrix_.columns, column = offset % matrix_.columns;
      const uint64_t block_column = column / matrix_.block.columns;
      const uint64_t end = std::min(matrix_.columns - column,
                                    matrix_.block.columns - column % matrix_.block.columns);
      const auto piece = codes.first(std::min<uint64_t>(end, codes.size()));
      const uint64_t cell = row / matrix_.block.rows * matrix_.grid_columns + block_column;
      const auto is_zero = [](std::byte code) { return (code & std::byte{0x7F}) == std::byte{0}; };
      if (scales_[cell] == 0 && !std::all_of(piece.begin(), piece.end(), is_zero)) {
        found_ = true;
        wrong_cell_ = cell;
        return;
      }
      offset += piece.size();
      codes = codes.subspan(piece.size());
    }
  }

  void Tell(std::vector<Finding>* findings) const {
    if (any_ && !found_) {
      const auto zeros = std::count(scales_.begin(), scales_.end(), 0.0f);
      findings->push_back(
          {"scale", fmt::format("{}: {} scales of '{}' are 0, over codes that are "
                                "0 too",
                                Where(matrix_.weight), zeros, matrix_.scale.info->name)});
    }
    if (!found_) return;
    findings->push_back(
        {"scale", fmt::format("{}: scale [{}, {}] of '{}' is 0 over codes that are not",
                              Where(matrix_.weight), wrong_cell_ / matrix_.grid_columns,
                              wrong_cell_ % matrix_.grid_columns, matrix_.scale.info->name)});
  }

 private:
  const Fp8Matrix& matrix_;
  std::vector<float> scales_;
  bool any_;
  bool found_ = false;
  uint64_t wrong_cell_ = 0;
};

// What is wrong with a scale; nullptr for a positive, finite one. `bits` hold a float of some type
// whose sign bit is `sign` and whose first magnitude beyond the numbers is `infinity`.
struct FloatBits {
  uint64_t bytes;
  uint32_t sign, infinity;
  bool has_infinity = true;

  const char* Fault(uint32_t bits) const {
    const uint32_t magnitude = bits & (sign - 1);
    if (magnitude > infinity || (magnitude == infinity && !has_infinity)) return "NaN";
    if (magnitude == infinity) return "infinite";
    if (magnitude == 0) return "zero";
    return (bits & sign) != 0 ? "negative" : nullptr;
  }
};

std::optional<FloatBits> BitsOfScale(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return FloatBits{4, 0x80000000u, 0x7F800000u};
    case DType::kBF16:
      return FloatBits{2, 0x8000u, 0x7F80u};
    case DType::kF16:
      return FloatBits{2, 0x8000u, 0x7C00u};
    case DType::kF8E4M3:
      return FloatBits{1, 0x80u, 0x7Fu, false};
    default:
      return std::nullopt;
  }
}

// Powers of two have one code that is no number, 255.
const char* FaultOfScale(DType dtype, const std::optional<FloatBits>& format, uint32_t bits) {
  if (format) return format->Fault(bits);
  return (dtype == DType::kU8 || dtype == DType::kF8E8M0) && bits == 0xFF ? "NaN" : nullptr;
}

}  // namespace

std::vector<Finding> ScanMatrix(const Checkpoint& checkpoint, const Fp8Matrix& matrix) {
  std::vector<Finding> findings;
  Result<std::vector<float>> scales = ReadScales(checkpoint, matrix);
  if (!scales.ok()) findings.push_back({"scale", scales.status().message()});
  NanCount nan;
  ZeroScales zero(matrix, scales.ok() ? std::move(*scales) : std::vector<float>());
  const auto visit = [&](uint64_t offset, std::span<const std::byte> codes) {
    nan.Add(offset, codes);
    zero.Add(offset, codes);
  };
  for (Finding& finding : ForChunks(checkpoint, matrix.weight, visit))
    findings.push_back(std::move(finding));
  nan.Tell(matrix.weight, &findings);
  zero.Tell(&findings);
  return findings;
}

std::vector<Finding> ScanCodes(const Checkpoint& checkpoint, const TensorRef& codes) {
  NanCount nan;
  std::vector<Finding> findings =
      ForChunks(checkpoint, codes,
                [&](uint64_t offset, std::span<const std::byte> c) { nan.Add(offset, c); });
  nan.Tell(codes, &findings);
  return findings;
}

std::vector<Finding> ScanScales(const Checkpoint& checkpoint, const TensorRef& scales) {
  const std::optional<FloatBits> format = BitsOfScale(scales.info->dtype);
  const DType dtype = scales.info->dtype;
  if (!format && dtype != DType::kU8 && dtype != DType::kF8E8M0) return {};
  const uint64_t width = format ? format->bytes : 1;
  uint64_t count = 0, first = 0;
  const char* first_fault = nullptr;
  const auto visit = [&](uint64_t offset, std::span<const std::byte> chunk) {
    for (uint64_t i = 0; i + width <= chunk.size(); i += width) {
      uint32_t bits = 0;
      std::memcpy(&bits, chunk.data() + i, width);
      const char* fault = FaultOfScale(dtype, format, bits);
      if (fault == nullptr || count++ > 0) continue;
      first = (offset + i) / width;
      first_fault = fault;
    }
  };
  std::vector<Finding> findings = ForChunks(checkpoint, scales, visit);
  if (count > 0)
    findings.push_back({"scale", fmt::format("{} holds {} scales that are not positive and finite, "
                                             "the first at {} is {}",
                                             Where(scales), count, Place(scales.info->shape, first),
                                             first_fault)});
  return findings;
}

}  // namespace blockscale
