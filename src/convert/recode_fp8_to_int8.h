// FP8 to INT8 rows in one pass from codes to codes (blockscale/fp8_to_int8.h).
#pragma once

#include <cstdint>

#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "convert/recode.h"

namespace blockscale {

// Converts what RecodeRows has read into buffers->stored. An error names the tensor, row and
// column, its code, and of NaN codes their number in the whole tensor.
Status RecodeFp8ToInt8(const Checkpoint& source, const OutputMatrix& matrix, uint64_t first,
                       uint64_t count, RecodeBuffers* buffers);

}  // namespace blockscale
