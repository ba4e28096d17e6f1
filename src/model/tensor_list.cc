#include "model/tensor_list.h"

#include <utility>

namespace blockscale {
namespace {

constexpr uint64_t kBlock = 128, kGroup = 32;

uint64_t Parts(uint64_t whole, uint64_t part) { return (whole + part - 1) / part; }

}  // namespace

void TensorList::Add(const std::string& name, DType dtype, std::vector<uint64_t> shape) {
  tensors_.push_back({.name = name, .dtype = dtype, .shape = std::move(shape)});
}

void TensorList::Plain(const std::string& module, uint64_t rows, uint64_t columns) {
  Add(module + ".weight", DType::kBF16, {rows, columns});
}

void TensorList::Norm(const std::string& module, uint64_t width) {
  Add(module + ".weight", DType::kBF16, {width});
}

void TensorList::Fp8(const std::string& module, uint64_t rows, uint64_t columns, DType scale_type,
                     const std::string& scale) {
  Add(module + ".weight", DType::kF8E4M3, {rows, columns});
  Add(module + "." + scale, scale_type, {Parts(rows, kBlock), Parts(columns, kBlock)});
}

void TensorList::PackedMxfp4(const std::string& module, uint64_t rows, uint64_t columns) {
  Add(module + ".weight_packed", DType::kU8, {rows, columns / 2});
  Add(module + ".weight_scale", DType::kU8, {rows, columns / kGroup});
}

void TensorList::PackedInt4(const std::string& module, uint64_t rows, uint64_t columns) {
  Add(module + ".weight_packed", DType::kI32, {rows, columns / 8});
  Add(module + ".weight_scale", DType::kBF16, {rows, columns / kGroup});
  Add(module + ".weight_shape", DType::kI64, {2});
  fixed_[module + ".weight_shape"] = {static_cast<int64_t>(rows), static_cast<int64_t>(columns)};
}

void TensorList::DeepSeekFp4(const std::string& module, uint64_t rows, uint64_t columns) {
  Add(module + ".weight", DType::kI8, {rows, columns / 2});
  Add(module + ".scale", DType::kF8E8M0, {rows, columns / kGroup});
}

}  // namespace blockscale
