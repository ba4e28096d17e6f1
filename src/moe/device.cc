#include "moe/device.h"

namespace blockscale {

Device ThisDevice() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi"))
    return Device::kCpuAvx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Device::kCpuAvx2;
#endif
  return Device::kCpu;
}

}  // namespace blockscale
