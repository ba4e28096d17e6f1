// One matrix of any scheme against what became of it in any other, element by element, in scalar
// code that shares nothing with the converter but where the tensors are.
//
// With s the scale of an element in the converted checkpoint, x = W / s and q its code: |x - q| is
// at most half the step of the codes around x. Beyond the largest code q is the largest: counted as
// clipped. Where both spell the same scheme, codes are the same and so are the values.
#pragma once

#include <vector>

#include "base/status.h"
#include "blockscale/verify.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/stored_matrix.h"

namespace blockscale {

// Adds what does not hold to `failures`: at most one line for each kind of trouble, with its count
// and first place. An error is one of reading. Reads about 1 MiB of each checkpoint at a time.
Result<MatrixQuality> CheckRecoded(const Checkpoint& source, const StoredMatrix& from,
                                   const Checkpoint& converted, const StoredMatrix& to,
                                   std::vector<VerifyFailure>* failures);

}  // namespace blockscale
