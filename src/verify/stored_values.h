// The values of a stored matrix, row by row, decoded by definitions of this room's own
// (element_grid.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/stored_matrix.h"

namespace blockscale {

// Some rows.
struct DecodedRows {
  std::vector<double> codes;   // elements
  std::vector<double> values;  // fl32(element * scale), as the schemes define them
  std::vector<float> scales;   // of each block of each row; 1 without scales
};

// Columns that share a scale.
uint64_t BlockWidthOf(const StoredMatrix& matrix);

class ValueReader {
 public:
  ValueReader(const Checkpoint& checkpoint, const StoredMatrix& matrix)
      : checkpoint_(checkpoint), matrix_(matrix) {}

  Status Open();  // before Read
  // The smallest scale that a block can have here: below it there is none to choose.
  float SmallestScale() const;
  Status Read(uint64_t first, uint64_t count, DecodedRows* rows);

 private:
  float WithGlobal(float scale) const;
  Status ReadRow(uint64_t row, uint64_t grid, float* scales);

  const Checkpoint& checkpoint_;
  const StoredMatrix& matrix_;
  float global_ = 1;
  std::vector<std::byte> line_, scale_line_;
};

}  // namespace blockscale
