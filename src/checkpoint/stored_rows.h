// Reads the rows of a stored matrix, wherever its experts and interleaved rows stand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "checkpoint/stored_matrix.h"

namespace blockscale {

// Some rows as they are stored.
struct StoredRows {
  std::vector<std::byte> codes;   // code_row_bytes() a row, without gaps
  std::vector<std::byte> scales;  // rows of the grid from spec.grid_row(first) on
  std::vector<float> effective;   // the same, decoded
};

// Reads rows [first, first + count) into `rows`. Refuses scales that are not finite or are
// negative, naming the first.
Status ReadStoredRows(const Checkpoint& checkpoint, const StoredMatrix& matrix,
                      const GlobalScale& global, uint64_t first, uint64_t count, StoredRows* rows);

// The FP32 scale of a whole matrix; kNone for a matrix without one. Refuses what is not positive
// and finite.
Result<GlobalScale> ReadGlobalScale(const Checkpoint& checkpoint, const StoredMatrix& matrix);

}  // namespace blockscale
