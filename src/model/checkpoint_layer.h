// One MoE layer of a checkpoint: what it is and where its experts are. Sizes and formats come from
// the tensors, the number of slots and the activation from the config; nothing is guessed.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/stored_matrix.h"
#include "moe/layer_weights.h"

namespace blockscale {

struct StoredExpert {
  StoredMatrix gate, up, down;               // w1, w3, w2
  StoredBias gate_bias, up_bias, down_bias;  // without values: none
};

struct CheckpointLayer {
  MoeSpec spec;
  std::vector<StoredExpert> experts;  // by global id
};

// Layer `layer` of `checkpoint`. An error names the layer and what is missing or not alike: no
// experts there (it says which layers have them), ids with gaps, a projection missing, experts of
// different shapes or schemes, no number of slots or an unknown activation in the config.
//
// inputs of the spec: what the weights are usually multiplied with (mxfp4 and mxfp8: mxfp8; nvfp4:
// nvfp4; fp8-block: fp8-token-128; fp8-channel and fp8-tensor: fp8-token; int8-channel: int8-token;
// others: bf16).
Result<CheckpointLayer> FindLayer(const Checkpoint& checkpoint, uint64_t layer);

// The lowest layer with experts; an error when there is none.
Result<uint64_t> FirstMoeLayer(const Checkpoint& checkpoint);

// The weights of the experts `ids` (global, as local experts 0, 1, ...), read when they are asked
// for. Keeps references to both.
std::unique_ptr<LayerWeights> MakeCheckpointWeights(const Checkpoint& checkpoint,
                                                    const CheckpointLayer& layer,
                                                    std::vector<uint32_t> ids);

}  // namespace blockscale
