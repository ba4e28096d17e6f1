// Which tensors of a checkpoint are FP8 matrices, and which tensor holds the scales of each.
// By presence and dtype: a tensor "X.weight" of F8_E4M3 and beside it exactly one of
// "X.weight_scale_inv", "X.weight_scale", "X.scale", which multiplies, whatever its name says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "numeric/format.h"

namespace blockscale {

struct Fp8Matrix {
  TensorRef weight;  // F8_E4M3 [rows, columns]
  TensorRef scale;   // ScaleFormatOf its type; [grid_rows, grid_columns], or one number
  uint64_t rows = 0;
  uint64_t columns = 0;
  BlockSize block;         // of a single scale: the whole matrix
  uint64_t grid_rows = 0;  // ceil(rows / block.rows)
  uint64_t grid_columns = 0;
};

// The suffixes that a scale may have instead of "weight", in the order in which they are looked
// for.
inline constexpr std::string_view kScaleSuffixes[] = {"weight_scale_inv", "weight_scale", "scale"};

// The format of scales that are stored with this type (U8 holds E8M0 bytes); nullopt for the
// others.
std::optional<Format> ScaleFormatOf(DType dtype);

// The matrix of one F8_E4M3 tensor. An error names the tensor: no scale, two scales, a scale of
// another type or grid, a shape that is no matrix, a config whose block size does not fit.
Result<Fp8Matrix> MatchFp8Matrix(const Checkpoint& checkpoint, const TensorRef& weight);

// All of them, in the order of Checkpoint::tensors(); the first error ends it.
Result<std::vector<Fp8Matrix>> FindFp8Matrices(const Checkpoint& checkpoint);

// Reads the scales of a matrix as FP32, row by row of the grid. Refuses NaN, infinity and negative
// values, naming the first. At most 64 MiB.
Result<std::vector<float>> ReadScales(const Checkpoint& checkpoint, const Fp8Matrix& matrix);

}  // namespace blockscale
