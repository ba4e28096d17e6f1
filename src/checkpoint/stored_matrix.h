// Which matrices a checkpoint holds, quantised or not, and where their codes and scales stand:
// found by the presence, type and shape of tensors. The config is asked only for what shapes cannot
// tell: the size of FP8 blocks and of INT4 groups, which are never guessed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/dialect.h"
#include "numeric/quant_spec.h"

namespace blockscale {

// One matrix. A tensor of stacked experts holds many: then `module` names the expert and the
// projection as other models do ("model.layers.0.mlp.experts.3.gate_proj"). Refs point into the
// Checkpoint.
struct StoredMatrix {
  std::string module;  // the name without ".weight"
  Dialect dialect = Dialect::kPlain;
  QuantSpec spec;
  uint64_t rows = 0;
  uint64_t columns = 0;
  TensorRef codes;
  TensorRef scales;  // null for plain matrices
  TensorRef global;  // NVFP4's FP32 scale, else null
  GlobalScale::Kind global_kind = GlobalScale::Kind::kNone;
  TensorRef input_scale;  // of the activations, where there is one: no part of the weight
  TensorRef shape;        // INT4's weight_shape
  // Row r stands at stored row first_row + r * row_step of the tensors.
  uint64_t first_row = 0;
  uint64_t row_step = 1;

  uint64_t code_row_bytes() const { return spec.row_bytes(columns); }
  uint64_t scale_row_bytes() const { return spec.grid_columns(columns) * spec.scale_bytes(); }
};

// A vector of stacked experts (a bias of gpt-oss): split and joined together with its matrices.
struct StoredBias {
  std::string module;
  TensorRef values;
  uint64_t count = 0;
  uint64_t first = 0;  // element
  uint64_t step = 1;
};

struct StoredMatrices {
  std::vector<StoredMatrix> matrices;  // in the order of Checkpoint::tensors(), experts in order
  std::vector<StoredBias> biases;
};

// All matrices named *.weight or *.weight_packed with two dimensions, and stacked experts; plain
// ones too. An error names the tensor: an 8-bit or packed tensor without its scales, two scales, a
// type or shape that fits no scheme, a block size that the config does not give. With `tolerate`
// such a matrix becomes a finding of kind "scale" and is left out.
Result<StoredMatrices> FindStoredMatrices(const Checkpoint& checkpoint,
                                          std::vector<Finding>* tolerate = nullptr);

}  // namespace blockscale
