#include "backends/cpu/kernel_probe.h"

#include <cstring>

namespace blockscale::cpu {
namespace {

constexpr int kLanes = 16;

}  // namespace

uint64_t ReadAll(const std::byte* data, size_t bytes) {
#ifdef BLOCKSCALE_CPU_AVX512
  if (Avx512IsHere()) return ReadAllAvx512(data, bytes);
#endif
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 64 <= bytes; i += 64) {
    uint64_t line[8];
    std::memcpy(line, data + i, 64);
    for (int l = 0; l < 8; ++l) sums[l] ^= line[l];
  }
  uint64_t sum = 0;
  for (const uint64_t x : sums) sum ^= x;
  return sum;
}

uint64_t DotProducts(int rounds) {
#ifdef BLOCKSCALE_CPU_AVX512
  if (Avx512IsHere()) return DotProductsAvx512(rounds);
#endif
  float sums[kLanes] = {};
  volatile float input = 0.5f;
  const float x = input;
  for (int r = 0; r < rounds; ++r)
    for (int l = 0; l < kLanes; ++l) sums[l] = sums[l] * x + x;
  volatile float sink = sums[0] + sums[kLanes - 1];
  static_cast<void>(sink);
  return uint64_t{2} * static_cast<uint64_t>(rounds) * kLanes;
}

}  // namespace blockscale::cpu
