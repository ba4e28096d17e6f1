// The block-scaling schemes, one list: how elements and scales make a value. A row is (enumerator,
// id, name, element format, scale format, rows and columns of a block). 0 stands for "the whole
// matrix in that direction"; without scales the scale format is the element's own and unused.
#pragma once

#include <cstdint>

#include "base/enum_list.h"
#include "numeric/format.h"

namespace blockscale {

#define BLOCKSCALE_SCHEMES(X)                         \
  X(kF32, 0, "f32", kF32, kF32, 0, 0)                 \
  X(kBF16, 1, "bf16", kBF16, kBF16, 0, 0)             \
  X(kFP16, 2, "fp16", kFP16, kFP16, 0, 0)             \
  X(kFp8Block, 3, "fp8-block", kE4M3, kF32, 128, 128) \
  X(kFp8Tensor, 4, "fp8-tensor", kE4M3, kF32, 0, 0)   \
  X(kInt8Channel, 5, "int8-channel", kInt8, kF32, 1, 0)

BLOCKSCALE_ENUM_LIST(Scheme, BLOCKSCALE_SCHEMES)

struct SchemeFacts {
  Format element;
  Format scale;
  uint32_t block_rows;  // the usual ones: a checkpoint's config has the last word
  uint32_t block_columns;
};

constexpr SchemeFacts FactsOf(Scheme scheme) {
#define BLOCKSCALE_SCHEME_FACTS(enumerator, id, name, element, scale, rows, columns) \
  case Scheme::enumerator:                                                           \
    return {Format::element, Format::scale, rows, columns};
  switch (scheme) { BLOCKSCALE_SCHEMES(BLOCKSCALE_SCHEME_FACTS) }
#undef BLOCKSCALE_SCHEME_FACTS
  return {};
}

}  // namespace blockscale
