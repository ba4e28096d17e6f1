// The processors that a layer may be meant for, one list: (enumerator, id, name, what it is).
// "sm120" and the like are NVIDIA's compute capabilities.
#pragma once

#include "base/enum_list.h"

namespace blockscale {

#define BLOCKSCALE_DEVICES(X)                                         \
  X(kCpu, 0, "cpu", "any x86-64 processor")                           \
  X(kCpuAvx2, 1, "cpu-avx2", "x86-64 with AVX2 and FMA")              \
  X(kCpuAvx512, 2, "cpu-avx512", "x86-64 with AVX-512 BF16 and VBMI") \
  X(kSm80, 3, "sm80", "A100")                                         \
  X(kSm89, 4, "sm89", "L40S, RTX 4090")                               \
  X(kSm90, 5, "sm90", "H100, H200")                                   \
  X(kSm100, 6, "sm100", "B200, GB200")                                \
  X(kSm103, 7, "sm103", "B300, GB300")                                \
  X(kSm120, 8, "sm120", "RTX PRO 6000, RTX 5090")                     \
  X(kKunlunP800, 9, "kunlun-p800", "Kunlunxin P800")

BLOCKSCALE_ENUM_LIST(Device, BLOCKSCALE_DEVICES)

constexpr bool IsCpu(Device device) {
  return device == Device::kCpu || device == Device::kCpuAvx2 || device == Device::kCpuAvx512;
}

// The processor that this program runs on.
Device ThisDevice();

}  // namespace blockscale
