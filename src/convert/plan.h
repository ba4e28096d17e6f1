// What a conversion will write, decided from config, headers and recipe alone: which matrices get
// which scheme in which spelling, which tensors are copied, and at which byte of which shard each
// of them lands.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "blockscale/recipe.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/dialect.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/stored_matrix.h"
#include "numeric/block_quant.h"

namespace blockscale {

// A row must fit into memory once for each chunk in flight.
inline constexpr uint64_t kMaxColumns = uint64_t{8} << 20;

// One matrix of the output.
struct OutputMatrix {
  enum class Way {
    kFp8ToInt8,  // one pass from codes to codes (blockscale/fp8_to_int8.h)
    kRecode,     // to FP32 and from there to the target
    kRepack,     // the same codes and scales under other names
    kExactCast,  // MXFP4 to NVFP4 (numeric/block_cast.h)
  };
  std::string name;  // of the tensor that holds the codes
  Way way = Way::kRecode;
  // One; or for an interleaved target several of one shape, whose rows take turns.
  std::vector<const StoredMatrix*> sources;
  uint64_t rows = 0;
  uint64_t columns = 0;
  EncodeOptions encode;  // the global scale is found when the data is read
  GlobalScale::Kind global_kind = GlobalScale::Kind::kNone;  // in the output
  size_t group = 0;  // in ConversionPlan::groups, of those that share a global scale
  // Bytes in the output file; 0 where there is no such tensor.
  uint64_t codes_offset = 0;
  uint64_t scales_offset = 0;
  uint64_t global_offset = 0;
  uint64_t input_scale_offset = 0;
  uint64_t shape_offset = 0;
};

// The biases of stacked experts, split or joined: element i of part p of a group of `interleave`
// parts stands at i * interleave + p.
struct OutputBias {
  std::vector<StoredBias> parts;
  uint64_t interleave = 1;
  uint64_t offset = 0;
};

// One thing to write: exactly one of the three.
struct PlannedItem {
  TensorRef copy;  // as it is
  const OutputMatrix* matrix = nullptr;
  const OutputBias* bias = nullptr;
  uint64_t offset = 0;  // of a copy, in the output file
};

struct PlannedShard {
  std::string name;
  SafetensorsHeader header;
  std::string header_bytes;        // the first data_start bytes of the file
  std::vector<PlannedItem> items;  // in the order of the source file, so that reads run forward
};

// A quantised matrix of the output, converted or kept: what the new config has to describe.
struct QuantisedModule {
  std::string module;
  QuantSpec spec;
};

struct ConversionPlan {
  StoredMatrices stored;
  std::vector<std::unique_ptr<OutputMatrix>> matrices;  // in the order of the shards' items
  std::vector<std::unique_ptr<OutputBias>> biases;
  // Source matrices whose outputs share a global scale: q, k and v; gate and up.
  std::vector<std::vector<const StoredMatrix*>> groups;
  std::vector<PlannedShard> shards;  // those that keep at least one tensor
  Dialect dialect = Dialect::kPlain;
  std::vector<QuantisedModule> quantised;  // stacked experts by their single names
  std::vector<std::string> plain_linear;   // modules that stay or become plain, and are Linear
  std::vector<std::string> warnings;
  bool int8_only = false;  // FP8 to INT8 and nothing else
  uint64_t source_shards = 0;
  uint64_t source_bytes = 0;  // tensor data
  uint64_t output_bytes = 0;  // tensor data
  uint64_t file_bytes = 0;    // shards with their headers
  uint64_t kept_tensors = 0;

  uint64_t tensor_count() const;
};

// Refs inside point into `checkpoint`, which must outlive the plan.
Result<ConversionPlan> MakeConversionPlan(const Checkpoint& checkpoint, const Recipe& recipe,
                                          Int8Range int8_range = Int8Range::k127);

}  // namespace blockscale
