// The probes with AVX-512. Like kernel_avx512.cc, nothing here may be shared with other files.

#include <immintrin.h>

#include "backends/cpu/kernel_probe.h"

namespace blockscale::cpu {

uint64_t ReadAllAvx512(const std::byte* data, size_t bytes) {
  __m512i sums[4] = {};
  for (size_t i = 0; i + 256 <= bytes; i += 256)
    for (int l = 0; l < 4; ++l)
      sums[l] = _mm512_xor_si512(sums[l], _mm512_load_si512(data + i + 64 * l));
  const __m512i sum =
      _mm512_xor_si512(_mm512_xor_si512(sums[0], sums[1]), _mm512_xor_si512(sums[2], sums[3]));
  return static_cast<uint64_t>(_mm512_reduce_add_epi64(sum));
}

uint64_t DotProductsAvx512(int rounds) {
  constexpr int kChains = 24;
  __m512 sums[kChains];
  for (int c = 0; c < kChains; ++c) sums[c] = _mm512_setzero_ps();
  __m512i x = _mm512_set1_epi32(0x3F003F00);  // pairs of 0.5
  for (int r = 0; r < rounds; ++r) {
    // What the compiler cannot see through, so that nothing is hoisted.
    asm volatile("" : "+v"(x));
#pragma GCC unroll 24
    for (int c = 0; c < kChains; ++c) sums[c] = _mm512_dpbf16_ps(sums[c], (__m512bh)x, (__m512bh)x);
  }
  __m512 sum = sums[0];
  for (int c = 1; c < kChains; ++c) sum = _mm512_add_ps(sum, sums[c]);
  asm volatile("" : : "v"(sum));
  return static_cast<uint64_t>(rounds) * kChains * 16 * 2 * 2;  // lanes, pairs, multiply and add
}

}  // namespace blockscale::cpu
