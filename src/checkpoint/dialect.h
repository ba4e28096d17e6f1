// How checkpoints spell quantised matrices, one list: (enumerator, id, name, whether blockscale
// writes it). With X the name of a module:
//
//   plain               X.weight F32, BF16 or F16
//   deepseek            X.weight F8_E4M3, X.weight_scale_inv (a multiplier all the same), blocks
//   compressed-tensors  X.weight or X.weight_packed, X.weight_scale; NVFP4: X.weight_global_scale,
//   a
//                       divisor; INT4: X.weight_shape
//   modelopt            X.weight, X.weight_scale; NVFP4: X.weight_scale_2, a multiplier
//   gpt-oss             X_blocks, X_scales: all experts stacked, rows of gate and up interleaved
//   deepseek-v4         X.weight I8 (two FP4 codes) or F8_E4M3, X.scale F8_E8M0
// Source: docs/formats.md, "Spellings".
#pragma once

#include "base/enum_list.h"

namespace blockscale {

#define BLOCKSCALE_DIALECTS(X)                         \
  X(kPlain, 0, "plain", true)                          \
  X(kDeepSeek, 1, "deepseek", true)                    \
  X(kCompressedTensors, 2, "compressed-tensors", true) \
  X(kModelOpt, 3, "modelopt", true)                    \
  X(kGptOss, 4, "gpt-oss", true)                       \
  X(kDeepSeekV4, 5, "deepseek-v4", false)

BLOCKSCALE_ENUM_LIST(Dialect, BLOCKSCALE_DIALECTS)

constexpr bool IsWritten(Dialect dialect) {
#define BLOCKSCALE_DIALECT_WRITTEN(enumerator, id, name, written) \
  case Dialect::enumerator:                                       \
    return written;
  switch (dialect) { BLOCKSCALE_DIALECTS(BLOCKSCALE_DIALECT_WRITTEN) }
#undef BLOCKSCALE_DIALECT_WRITTEN
  return false;
}

}  // namespace blockscale
