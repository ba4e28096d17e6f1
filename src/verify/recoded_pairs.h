// Which matrices of source and converted checkpoint belong together, whatever their schemes and
// spellings: by the names of their modules; and everything else, which must be as it was.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/status.h"
#include "blockscale/verify.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/stored_matrix.h"

namespace blockscale {

struct RecodedPairs {
  StoredMatrices source, converted;
  // Matrices whose scheme or spelling changed, in the order of their names by bytes.
  std::vector<std::pair<const StoredMatrix*, const StoredMatrix*>> changed;
};

// What cannot be paired becomes a failure. An error: the source is no checkpoint that could be
// converted.
Result<RecodedPairs> PairRecoded(const Checkpoint& source, const Checkpoint& converted,
                                 std::vector<VerifyFailure>* failures);

// Tensors that belong to no changed matrix must be the same bit for bit; none may be missing or
// extra. Biases of stacked experts are compared value by value where they were split or joined.
Status CheckUnchanged(const Checkpoint& source, const Checkpoint& converted,
                      const RecodedPairs& pairs, std::vector<VerifyFailure>* failures,
                      uint64_t* compared);

}  // namespace blockscale
