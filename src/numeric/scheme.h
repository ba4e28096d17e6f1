// The block-scaling schemes, one list: how elements and scales make a value. A row is (enumerator,
// id, name, element format, scale format, rows and columns of a block, whether an FP32 scale of the
// whole matrix comes on top). 0 stands for "the whole matrix in that direction"; without scales the
// scale format is the element's own and unused.
//
// Source: OCP Microscaling 1.0 (mxfp8, mxfp4), compressed-tensors and ModelOpt (nvfp4, int4-group,
// int8-channel, fp8-channel), DeepSeek-V3 (fp8-block); docs/formats.md.
#pragma once

#include <cstdint>

#include "base/enum_list.h"
#include "numeric/format.h"

namespace blockscale {

#define BLOCKSCALE_SCHEMES(X)                                  \
  X(kF32, 0, "f32", kF32, kF32, 0, 0, false)                   \
  X(kBF16, 1, "bf16", kBF16, kBF16, 0, 0, false)               \
  X(kFP16, 2, "fp16", kFP16, kFP16, 0, 0, false)               \
  X(kFp8Block, 3, "fp8-block", kE4M3, kF32, 128, 128, false)   \
  X(kFp8Tensor, 4, "fp8-tensor", kE4M3, kF32, 0, 0, false)     \
  X(kInt8Channel, 5, "int8-channel", kInt8, kF32, 1, 0, false) \
  X(kFp8Channel, 6, "fp8-channel", kE4M3, kF32, 1, 0, false)   \
  X(kMxfp8, 7, "mxfp8", kE4M3, kE8M0, 1, 32, false)            \
  X(kMxfp4, 8, "mxfp4", kE2M1, kE8M0, 1, 32, false)            \
  X(kNvfp4, 9, "nvfp4", kE2M1, kUE4M3, 1, 16, true)            \
  X(kInt4Group, 10, "int4-group", kInt4, kBF16, 1, 128, false)

BLOCKSCALE_ENUM_LIST(Scheme, BLOCKSCALE_SCHEMES)

struct SchemeFacts {
  Format element;
  Format scale;
  uint32_t block_rows;  // the usual ones: a checkpoint's config has the last word
  uint32_t block_columns;
  bool global;
};

constexpr SchemeFacts FactsOf(Scheme scheme) {
#define BLOCKSCALE_SCHEME_FACTS(enumerator, id, name, element, scale, rows, columns, global) \
  case Scheme::enumerator:                                                                   \
    return {Format::element, Format::scale, rows, columns, global};
  switch (scheme) { BLOCKSCALE_SCHEMES(BLOCKSCALE_SCHEME_FACTS) }
#undef BLOCKSCALE_SCHEME_FACTS
  return {};
}

// Whether a matrix of this scheme has scales at all.
constexpr bool HasScales(Scheme scheme) {
  return scheme != Scheme::kF32 && scheme != Scheme::kBF16 && scheme != Scheme::kFP16;
}

}  // namespace blockscale
