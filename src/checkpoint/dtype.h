// The element types that a safetensors header may name, in the order in which the reference writer
// lays tensors out (it sorts by this order, descending). Source of names, bits and order: the
// safetensors format, tensor.rs of the reference implementation (2026-05).
#pragma once

#include <cstdint>

#include "base/enum_list.h"

namespace blockscale {

// (enumerator, layout order, wire name, bits per element). F8_E4M3 is e4m3fn (no infinities).
// F4 counts logical elements: a [2, 8] F4 tensor occupies 8 bytes.
#define BLOCKSCALE_DTYPES(X)           \
  X(kBool, 0, "BOOL", 8)               \
  X(kF4, 1, "F4", 4)                   \
  X(kF6E2M3, 2, "F6_E2M3", 6)          \
  X(kF6E3M2, 3, "F6_E3M2", 6)          \
  X(kU8, 4, "U8", 8)                   \
  X(kI8, 5, "I8", 8)                   \
  X(kF8E5M2, 6, "F8_E5M2", 8)          \
  X(kF8E4M3, 7, "F8_E4M3", 8)          \
  X(kF8E8M0, 8, "F8_E8M0", 8)          \
  X(kF8E4M3Fnuz, 9, "F8_E4M3FNUZ", 8)  \
  X(kF8E5M2Fnuz, 10, "F8_E5M2FNUZ", 8) \
  X(kI16, 11, "I16", 16)               \
  X(kU16, 12, "U16", 16)               \
  X(kF16, 13, "F16", 16)               \
  X(kBF16, 14, "BF16", 16)             \
  X(kI32, 15, "I32", 32)               \
  X(kU32, 16, "U32", 32)               \
  X(kF32, 17, "F32", 32)               \
  X(kC64, 18, "C64", 64)               \
  X(kF64, 19, "F64", 64)               \
  X(kI64, 20, "I64", 64)               \
  X(kU64, 21, "U64", 64)

BLOCKSCALE_ENUM_LIST(DType, BLOCKSCALE_DTYPES)

constexpr int BitsOf(DType dtype) {
#define BLOCKSCALE_DTYPE_BITS(enumerator, id, name, bits) \
  case DType::enumerator:                                 \
    return bits;
  switch (dtype) { BLOCKSCALE_DTYPES(BLOCKSCALE_DTYPE_BITS) }
#undef BLOCKSCALE_DTYPE_BITS
  return 0;
}

}  // namespace blockscale
