// What is in a checkpoint and what is odd about it, without trusting its config, its index or its
// file names: schemes by presence and type of tensors, counts by class, findings.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "model/families.h"
#include "model/tensor_class.h"

namespace blockscale {

struct TensorCount {
  uint64_t tensors = 0;
  uint64_t bytes = 0;
};

struct Inspection {
  std::string folder;
  std::optional<Family> family;
  std::string model_type;    // as the config says
  std::string quant_method;  // likewise, "" without one
  TensorCount total;
  // Scales count with their matrices. Names: model/matrix_schemes.h, or the type of a plain tensor.
  std::map<std::string, TensorCount> schemes;
  std::map<TensorClass, TensorCount> classes;
  std::map<std::string, uint64_t> dialects;  // spelling -> quantised matrices
  uint64_t fp8_matrices = 0;                 // F8_E4M3, with usable scales or without
  uint64_t int8_matrices = 0;                // likewise
  std::vector<std::pair<std::string, TensorCount>> shards;
  std::vector<Finding> findings;
  bool data_read = false;
};

// Kinds of findings, as Finding::kind spells them. A message is one line of plain text.
//
//   unreadable-shard   an indexed file is missing, is no safetensors file, or reading it failed
//   unreadable-folder  a subfolder cannot be listed
//   missing-tensor     an index entry without a tensor
//   unindexed-tensor   a tensor in an indexed shard that the index does not place there
//   unindexed-shard    a .safetensors file, also in subfolders, that the index does not name
//   total-size         the index's total_size is not the size of the tensors
//   shard-count        "-of-N" in shard names is not their number, or they count from 0
//   scale              missing, doubled, of a wrong type or shape; with data: not finite,
//                      negative or zero
//   nan-codes          with data: FP8 codes that are NaN, how many and where the first is
//   config             quantization_config says what the tensors do not show
//
// Reads headers only. With `read_data` the FP8 matrices and all FP8 and INT8 scales are read too,
// in chunks of 1 MiB. An error means that the checkpoint cannot be opened at all.
//
// `blockscale inspect --json` prints an Inspection as one object, names in this order:
//
//   {"folder", "family" ("unknown" without one), "model_type", "quant_method",
//    "tensors", "bytes", "fp8_matrices", "int8_matrices",
//    "dialects": {NAME: matrices, ...}, "schemes": {NAME: {"tensors", "bytes"}, ...}, "classes":
//    {NAME: {"tensors", "bytes"}, ...}, "shards": [{"name", "tensors", "bytes"}, ...], "data_read",
//    "findings": [{"kind", "message"}, ...]}
Result<Inspection> InspectCheckpoint(FileSystem& files, const std::string& folder, bool read_data);

}  // namespace blockscale
