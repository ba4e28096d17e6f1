// One matrix of the output from its sources, some rows at a time: to FP32 and from there to the
// target's codes and scales, with what that costs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "blockscale/fp8_to_int8.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/stored_rows.h"
#include "convert/plan.h"
#include "numeric/block_quant.h"

namespace blockscale {

// The global scales of a matrix: found once, before its first rows are converted.
struct MatrixScales {
  std::vector<GlobalScale> source;  // of each of OutputMatrix::sources
  GlobalScale target;
  int cast_exponent = 0;             // of an exact cast (numeric/block_cast.h)
  std::optional<float> input_scale;  // of the activations, in the target's convention
};

// Finds them; those that several matrices share are found once, by reading all of these (in
// parallel, in pieces). Not thread-safe.
class ScaleFinder {
 public:
  ScaleFinder(const Checkpoint& source, const ConversionPlan& plan)
      : source_(source), plan_(plan) {}
  Result<MatrixScales> Find(const OutputMatrix& matrix);

 private:
  struct Shared {
    GlobalScale global;
    int cast_exponent = 0;
  };
  Result<Shared> FindShared(const OutputMatrix& matrix,
                            const std::vector<const StoredMatrix*>& group) const;

  const Checkpoint& source_;
  const ConversionPlan& plan_;
  std::unordered_map<size_t, Shared> shared_;  // by group
};

// Reused from chunk to chunk.
struct RecodeBuffers {
  StoredRows stored, part;
  std::vector<float> values, decoded, effective;
  std::vector<std::byte> codes, scales;  // the result
  std::vector<RowsLoss> losses;  // of each row: their sum must not depend on the size of chunks
  // Of Way::kFp8ToInt8.
  std::vector<float> row_scales;
  std::vector<RowQuality> quality;
};

// Makes rows [first, first + count), which begin at a row of target blocks. An error names the
// tensor, its row and column, and what stands there.
Status RecodeRows(const Checkpoint& source, const OutputMatrix& matrix, const MatrixScales& scales,
                  uint64_t first, uint64_t count, RecodeBuffers* buffers);

}  // namespace blockscale
