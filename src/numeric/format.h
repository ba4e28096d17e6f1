// The element formats, one list: a row is (enumerator, id, name, bits, codec). Ids are append-only.
#pragma once

#include "base/enum_list.h"
#include "numeric/minifloat.h"

namespace blockscale {

// Bits are those that a stored element takes up (a UE4M3 has one to spare, always 0). Codec is the
// type that decodes a code, or void where the code is a C++ value itself.
#define BLOCKSCALE_FORMATS(X)     \
  X(kF32, 0, "f32", 32, void)     \
  X(kBF16, 1, "bf16", 16, BF16)   \
  X(kFP16, 2, "fp16", 16, FP16)   \
  X(kE4M3, 3, "e4m3", 8, E4M3)    \
  X(kE5M2, 4, "e5m2", 8, E5M2)    \
  X(kUE4M3, 5, "ue4m3", 8, UE4M3) \
  X(kE2M1, 6, "e2m1", 4, E2M1)    \
  X(kE8M0, 7, "e8m0", 8, E8M0)    \
  X(kInt8, 8, "int8", 8, Int8)    \
  X(kInt4, 9, "int4", 4, Int4)

BLOCKSCALE_ENUM_LIST(Format, BLOCKSCALE_FORMATS)

constexpr int BitsOf(Format format) {
#define BLOCKSCALE_FORMAT_BITS(enumerator, id, name, bits, codec) \
  case Format::enumerator:                                        \
    return bits;
  switch (format) { BLOCKSCALE_FORMATS(BLOCKSCALE_FORMAT_BITS) }
#undef BLOCKSCALE_FORMAT_BITS
  return 0;
}

}  // namespace blockscale
