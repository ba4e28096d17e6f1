// Memory for prepared weights: zeroed, aligned, on huge pages where the system gives them (an
// expert a token touches 34 MB that are read once; with 4 KiB pages the walk costs 15 to 20 %).
#pragma once

#include <cstddef>
#include <utility>

#include "blockscale/status.h"

namespace blockscale::cpu {

class HugeBuffer {
 public:
  HugeBuffer() = default;
  ~HugeBuffer();
  HugeBuffer(HugeBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  HugeBuffer& operator=(HugeBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  // An error names the size that the system refused.
  static Result<HugeBuffer> Make(size_t bytes);

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace blockscale::cpu
