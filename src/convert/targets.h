// The first half of a plan: which scheme each matrix is to have, in which dialect, and whether that
// can be.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/dialect.h"
#include "checkpoint/stored_matrix.h"
#include "convert/recipe.h"

namespace blockscale {

// Refuses a checkpoint with FP8 matrices whose config speaks of no FP8 at all: the cause, told
// before what follows from it (a block size that is missing).
Status CheckFp8Config(const Checkpoint& checkpoint);

struct Targets {
  std::vector<MatrixTarget> of;       // [matrices]: with the present spec where it is kept
  std::vector<bool> changes;          // [matrices]: scheme or spelling
  Dialect dialect = Dialect::kPlain;  // of what is written
  std::vector<std::string> warnings;
};

// Refuses what would lose the meaning of a checkpoint: NVFP4 experts as MXFP4, columns that do not
// divide into groups, a dialect without words for a scheme, a config that contradicts the tensors,
// and a recipe that converts nothing.
Result<Targets> ChooseTargets(const Checkpoint& checkpoint, const StoredMatrices& stored,
                              const RecipeBook& book);

}  // namespace blockscale
