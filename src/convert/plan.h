// What a conversion will write, decided from config and headers alone: which tensors become INT8,
// which are copied, and at which byte of which shard each of them lands.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/fp8_matrix.h"
#include "checkpoint/safetensors.h"

namespace blockscale {

// A row must fit into memory once for each chunk in flight.
inline constexpr uint64_t kMaxColumns = uint64_t{8} << 20;

struct PlannedTensor {
  TensorRef source;
  const Fp8Matrix* matrix = nullptr;  // null: copied as it is
  uint64_t offset = 0;                // in the output file: of the copy, or of the INT8 codes
  uint64_t scale_offset = 0;          // of weight_scale, for a matrix
};

struct PlannedShard {
  std::string name;
  SafetensorsHeader header;
  std::string header_bytes;            // the first data_start bytes of the file
  std::vector<PlannedTensor> tensors;  // in the order of the source file, so that reads run forward
};

struct ConversionPlan {
  std::vector<Fp8Matrix> matrices;
  std::vector<PlannedShard> shards;  // those that keep at least one tensor
  uint64_t source_shards = 0;
  uint64_t source_bytes = 0;  // tensor data
  uint64_t output_bytes = 0;  // tensor data
  uint64_t file_bytes = 0;    // shards with their headers
  uint64_t kept_tensors = 0;

  uint64_t tensor_count() const { return kept_tensors + 2 * matrices.size(); }
};

// Refs inside point into `checkpoint`, which must outlive the plan.
Result<ConversionPlan> MakeConversionPlan(const Checkpoint& checkpoint);

// "a.b.weight" -> "a.b.weight_scale": the name that compressed-tensors gives the scale.
std::string Int8ScaleName(const std::string& weight_name);

}  // namespace blockscale
