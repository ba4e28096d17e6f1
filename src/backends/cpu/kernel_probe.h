// The inner loops of probe.h, for this processor.
#pragma once

#include <cstddef>
#include <cstdint>

namespace blockscale::cpu {

// Reads `bytes` (a multiple of 256) forward; a number that depends on all of them.
uint64_t ReadAll(const std::byte* data, size_t bytes);

// `rounds` times 24 independent dot-product instructions; returns the operations done.
uint64_t DotProducts(int rounds);

// With AVX-512; entered only where kernel_choice.cc finds it.
bool Avx512IsHere();
uint64_t ReadAllAvx512(const std::byte* data, size_t bytes);
uint64_t DotProductsAvx512(int rounds);

}  // namespace blockscale::cpu
