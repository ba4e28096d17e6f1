#include "backends/cpu/kernel.h"

#ifdef BLOCKSCALE_CPU_AVX2
#include "backends/cpu/kernel_avx2.h"
#endif
#ifdef BLOCKSCALE_CPU_AVX512
#include "backends/cpu/kernel_avx512.h"
#include "backends/cpu/kernel_probe.h"
#endif

namespace blockscale::cpu {
namespace {

constexpr Kernel kPortable = {"portable", RunBlockPortable, RunSparsePortable, nullptr};

#ifdef BLOCKSCALE_CPU_AVX2

template <class Codec>
void FillNibbles(uint8_t (&table)[2][32]) {
  for (int i = 0; i < 32; ++i) {
    const uint16_t code = BF16::Encode(Codec::Decode(static_cast<typename Codec::Code>(i & 15)));
    table[0][i] = static_cast<uint8_t>(code >> 8);
    table[1][i] = static_cast<uint8_t>(code & 255);
  }
}

Kernel Avx2(const TileFormat& format) {
  static const bool here = [] {
    if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))) return false;
    FillNibbles<E2M1>(avx2_e2m1_bytes);
    FillNibbles<Int4>(avx2_int4_bytes);
    return true;
  }();
  return here ? Avx2Kernel(format) : Kernel{};
}

#else

Kernel Avx2(const TileFormat&) { return {}; }

#endif

#ifdef BLOCKSCALE_CPU_AVX512

template <class Codec>
void FillWords(uint16_t* table) {
  for (int i = 0; i < 32; ++i)
    table[i] = BF16::Encode(Codec::Decode(static_cast<typename Codec::Code>(i & 15)));
}

template <class Codec>
void FillBytes(uint8_t (&table)[4][128]) {
  for (int i = 0; i < 256; ++i) {
    const uint16_t code = BF16::Encode(Codec::Decode(static_cast<typename Codec::Code>(i)));
    table[i / 128 * 2][i % 128] = static_cast<uint8_t>(code >> 8);
    table[i / 128 * 2 + 1][i % 128] = static_cast<uint8_t>(code & 255);
  }
}

}  // namespace

bool Avx512IsHere() {
  static const bool here = [] {
    if (!(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
          __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bf16")))
      return false;
    FillWords<E2M1>(avx512_e2m1_table);
    FillWords<Int4>(avx512_int4_table);
    FillBytes<E4M3>(avx512_e4m3_bytes);
    FillBytes<Int8>(avx512_int8_bytes);
    for (int i = 0; i < 64; ++i) {
      avx512_e2m1_unsigned[i] =
          static_cast<uint8_t>(2 * E2M1::Decode(static_cast<uint8_t>(i & 15)) + 12);
      avx512_int4_unsigned[i] = static_cast<uint8_t>(i & 15);
    }
    return true;
  }();
  return here;
}

namespace {

Kernel Avx512(const TileFormat& format) {
  if (!Avx512IsHere()) return {};
  Kernel kernel = Avx512Kernel(format);
  if (kernel.run != nullptr && __builtin_cpu_supports("avx512vnni"))
    kernel.run_int8 = Avx512Int8Kernel(format);
  return kernel;
}

#else

Kernel Avx512(const TileFormat&) { return {}; }

#endif

}  // namespace

Kernel ChooseKernel(const TileFormat& format) {
  for (const std::string_view name : kKernelNames) {
    const Kernel kernel = KernelNamed(name, format);
    if (kernel.run != nullptr) return kernel;
  }
  return kPortable;
}

Kernel KernelNamed(std::string_view name, const TileFormat& format) {
  for (const Kernel& kernel : {Avx512(format), Avx2(format), kPortable})
    if (kernel.run != nullptr && kernel.name == name) return kernel;
  return {};
}

}  // namespace blockscale::cpu
