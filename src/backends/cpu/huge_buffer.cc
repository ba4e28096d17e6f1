#include "backends/cpu/huge_buffer.h"

#include <sys/mman.h>

#include "base/status.h"

namespace blockscale::cpu {

HugeBuffer::~HugeBuffer() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Result<HugeBuffer> HugeBuffer::Make(size_t bytes) {
  HugeBuffer buffer;
  if (bytes == 0) return buffer;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return InvalidInput(
        "{} bytes of memory for prepared weights are not to be had; run fewer experts "
        "a rank",
        bytes);
  madvise(memory, bytes, MADV_HUGEPAGE);  // a wish; without it, small pages
  buffer.data_ = static_cast<std::byte*>(memory);
  buffer.bytes_ = bytes;
  return buffer;
}

}  // namespace blockscale::cpu
