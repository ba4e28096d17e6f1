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
  std::map<std::string, TensorCount> schemes;  // "fp8-block 128x128", "bf16", ...; scales included
  std::map<TensorClass, TensorCount> classes;
  uint64_t fp8_matrices = 0;
  std::vector<std::pair<std::string, TensorCount>> shards;
  std::vector<Finding> findings;
  bool data_read = false;
};

// Kinds of findings, as Finding::kind spells them:
//   unreadable-shard   a file that the index names and that is missing or no safetensors file
//   missing-tensor     an index entry without a tensor
//   unindexed-tensor   a tensor in an indexed shard that the index does not place there
//   unindexed-shard    a .safetensors file in the folder that the index does not name
//   total-size         the index's total_size is not the size of the tensors
//   shard-count        "-of-N" in shard names is not their number, or counting does not start at 1
//   scale              missing, doubled, of a wrong type or shape; with data: not finite, not
//   positive nan-codes          with data: FP8 codes that are NaN config quantization_config says
//   what the tensors do not show
//
// Reads headers only. With `read_data` every FP8 matrix and scale is read too, in chunks of 1 MiB.
Result<Inspection> InspectCheckpoint(FileSystem& files, const std::string& folder, bool read_data);

}  // namespace blockscale
