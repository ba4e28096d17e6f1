// Which tensors of source and converted checkpoint belong together: found here by name and dtype
// alone, without the converter's own pairing, so that a mistake there cannot hide.
#pragma once

#include <cstdint>
#include <vector>

#include "blockscale/verify.h"
#include "checkpoint/checkpoint.h"

namespace blockscale {

struct MatrixPair {
  TensorRef fp8, block_scale;  // in the source: F8_E4M3 [rows, columns]; F32 or BF16
  TensorRef int8, row_scale;   // in the converted checkpoint: I8 [rows, columns]; F32 [rows, 1]
  uint64_t rows = 0, columns = 0;
  uint64_t block_rows = 0, block_columns = 0;  // of a single scale: the whole matrix
  uint64_t grid_columns = 0;                   // ceil(columns / block_columns)
};

// Pairs every F8_E4M3 tensor of the source with what the converted checkpoint made of it, in the
// order of their names by bytes. What cannot be paired (no scale, a wrong grid, a missing or
// misshapen result) goes to `failures`.
std::vector<MatrixPair> PairMatrices(const Checkpoint& source, const Checkpoint& converted,
                                     std::vector<VerifyFailure>* failures);

}  // namespace blockscale
