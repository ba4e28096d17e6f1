// Puts the tensors of a checkpoint together, matrix by matrix, in the spellings that families use.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"

namespace blockscale {

class TensorList {
 public:
  void Add(const std::string& name, DType dtype, std::vector<uint64_t> shape);
  void Plain(const std::string& module, uint64_t rows, uint64_t columns);  // BF16
  void Norm(const std::string& module, uint64_t width);                    // BF16
  // F8_E4M3 in blocks of 128 x 128, scales named X.`scale`.
  void Fp8(const std::string& module, uint64_t rows, uint64_t columns, DType scale_type,
           const std::string& scale);
  // compressed-tensors mxfp4-pack-quantized.
  void PackedMxfp4(const std::string& module, uint64_t rows, uint64_t columns);
  // compressed-tensors pack-quantized, 4 bits in groups of 32, with its weight_shape.
  void PackedInt4(const std::string& module, uint64_t rows, uint64_t columns);
  // DeepSeek-V4: two FP4 codes in an I8, E8M0 scales of 32.
  void DeepSeekFp4(const std::string& module, uint64_t rows, uint64_t columns);

  std::vector<TensorInfo> TakeTensors() { return std::move(tensors_); }
  std::map<std::string, std::vector<int64_t>> TakeFixed() { return std::move(fixed_); }

 private:
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::vector<int64_t>> fixed_;
};

}  // namespace blockscale
