// The weights of the experts on a rank, wherever they are: in memory, in a checkpoint, made up.
// An expert at a time, so that a layer larger than memory can be prepared by streaming.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "moe/spec.h"
#include "numeric/quant_spec.h"

namespace blockscale {

// Rows of a matrix that somebody else owns. Row r stands at stored row first_row + r * row_step of
// `codes` and in the scale grid that goes with it: interleaved rows and halves of w13 need no copy.
struct MatrixRows {
  QuantSpec spec;
  uint64_t rows = 0;
  uint64_t columns = 0;
  const std::byte* codes = nullptr;
  const std::byte* scales = nullptr;
  uint64_t first_row = 0;
  uint64_t row_step = 1;
  GlobalScale global;
  const float* bias = nullptr;  // of stored row first_row + r * row_step; null: none

  const std::byte* code_row(uint64_t r) const {
    return codes + (first_row + r * row_step) * spec.row_bytes(columns);
  }
  const std::byte* scale_row(uint64_t r) const {
    return scales + spec.grid_row(first_row + r * row_step) * spec.grid_columns(columns) *
                        spec.scale_bytes();
  }
  float bias_of(uint64_t r) const { return bias ? bias[first_row + r * row_step] : 0.0f; }
};

// Row r to FP32 by the oracle: fl32(code * scale).
void DecodeMatrixRow(const MatrixRows& matrix, uint64_t r, float* out);

struct ExpertWeights {
  MatrixRows gate;                    // w1; the only one of FC1 when not gated
  MatrixRows up;                      // w3
  MatrixRows down;                    // w2
  std::shared_ptr<const void> owner;  // keeps what the rows point to
};

class LayerWeights {
 public:
  virtual ~LayerWeights() = default;
  // `local` counts from 0 on this rank. Safe to call from several threads.
  virtual Result<ExpertWeights> Expert(uint32_t local) const = 0;
};

// w13 and w2 of all local experts, stacked, in the order that spec.order says. Scales are stored
// with grids of w13 and w2 as wholes, so fp8-block asks for halves that begin at a block.
struct StackedWeights {
  std::vector<std::byte> w13_codes, w13_scales;    // [experts][fc1_rows][...]
  std::vector<std::byte> w2_codes, w2_scales;      // [experts][hidden][...]
  std::vector<GlobalScale> w13_global, w2_global;  // one an expert; empty: none
  std::vector<float> b13, b2;  // [experts][fc1_rows], [experts][hidden], or empty
};

// Refuses sizes that are not what `spec` says, naming them.
Result<std::unique_ptr<LayerWeights>> MakeStackedWeights(const MoeSpec& spec,
                                                         StackedWeights weights);

}  // namespace blockscale
