// How the matrices of a checkpoint are quantised, by the presence, type and shape of their tensors:
// a config is not asked, but for the block size, which shapes alone do not tell.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/fp8_matrix.h"

namespace blockscale {

// Holds references into the Checkpoint that it was made from.
struct MatrixSchemes {
  // Of weights and of their scales; a tensor that is neither is not here. The names:
  //   fp8-block 128x128   F8_E4M3 and a grid of scales
  //   fp8-tensor          F8_E4M3 and one scale
  //   fp8-channel         F8_E4M3 [N, K] and scales [N, 1] or [N]
  //   int8-channel        I8 [N, K] and scales [N, 1] or [N]
  //   int8-tensor         I8 and one scale
  //   mxfp8, mxfp4, nvfp4, int4-group 32   in any spelling (checkpoint/stored_matrix.h)
  //   fp8 without usable scales, int8 without usable scales
  //   "u8 with f8_e4m3 scales"   any other pair of types, as they are
  std::unordered_map<const TensorInfo*, std::string> scheme_of;

  std::vector<Fp8Matrix> fp8;           // with usable scales; of fp8-channel, blocks of 1 x K
  std::vector<TensorRef> fp8_unscaled;  // F8_E4M3 tensors without usable scales
  std::vector<TensorRef> int8_scales;   // of int8-channel and int8-tensor
  std::vector<TensorRef> other_scales;  // of MXFP8, MXFP4, NVFP4 and INT4, global ones too
  uint64_t int8_matrices = 0;
  std::map<std::string, uint64_t> dialects;  // spelling -> quantised matrices, stacked ones each
  uint64_t other_matrices = 0;               // "... with ... scales"
  std::vector<Finding> findings;  // of kind "scale": missing, doubled, of a wrong type or shape

  uint64_t fp8_matrices() const { return fp8.size() + fp8_unscaled.size(); }
};

MatrixSchemes FindMatrixSchemes(const Checkpoint& checkpoint);

// "F8_E4M3" -> "f8_e4m3": the scheme of a tensor that has no scales.
std::string PlainScheme(DType dtype);

}  // namespace blockscale
