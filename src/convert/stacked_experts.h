// Experts that are to be stacked into one tensor, as gpt-oss spells them: which of a checkpoint's
// matrices belong together, and in which order.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/stored_matrix.h"

namespace blockscale {

// One projection of one layer.
struct ExpertStack {
  std::string stem;                          // "model.layers.0.mlp.experts.gate_up_proj"
  std::vector<std::vector<size_t>> experts;  // [expert]: gate and up, or down; StoredMatrices index
  std::vector<StoredBias> biases;            // in the same order; empty when there are none
  const TensorInfo* first = nullptr;         // the tensor of which the source file comes first
};

struct ExpertStacks {
  std::vector<ExpertStack> stacks;
  std::unordered_set<const TensorInfo*> consumed;  // tensors that go into them
};

// Stacks the matrices that are marked. Refuses one that is no expert's, a layer whose experts are
// not numbered from 0 without gaps, or whose projections are not all there and of one shape.
Result<ExpertStacks> FindExpertStacks(const Checkpoint& checkpoint, const StoredMatrices& stored,
                                      const std::vector<bool>& marked);

}  // namespace blockscale
