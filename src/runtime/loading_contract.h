// Whether a runtime would load a checkpoint the way it is meant, found out without the runtime:
// which method each module gets, which parameters on which rank have which shape, and what would go
// wrong, above all silently.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/enum_list.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"

namespace blockscale {

#define BLOCKSCALE_RUNTIMES(X) X(kVllm, 0, "vllm") X(kVllmKunlun, 1, "vllm-kunlun")

BLOCKSCALE_ENUM_LIST(Runtime, BLOCKSCALE_RUNTIMES)

struct ContractFinding {
  bool error = true;    // false: a warning
  std::string object;   // module or tensor
  std::string message;  // with its remedy
};

// The modules that are alike in all layers.
struct ModuleClass {
  std::string group;       // "self_attn.qkv_proj"
  std::string class_name;  // the runtime's
  std::string method;      // "CompressedTensorsW8A8Int8", "UnquantizedLinearMethod", ...
  uint64_t modules = 0;
  // "weight int8 [1024, 3072]", as one rank holds it, of the first module.
  std::vector<std::string> parameters;
};

struct ContractReport {
  Runtime runtime = Runtime::kVllm;
  uint64_t tp = 1;
  std::vector<ModuleClass> classes;
  std::vector<ContractFinding> findings;  // errors first
  // compressed-tensors' scales on disk, over all quantised matrices. Kunlun multiplies those of
  // INT8 by 127 at load, which makes them the largest magnitude of their row.
  double smallest_scale = 0, largest_scale = 0;
  uint64_t scales = 0;
  uint64_t unit_scales = 0;  // exactly 1: all-zero rows, 127 in Kunlun's memory, and harmless

  bool ok() const;  // no error among the findings
};

// Reads headers and INT8 scales. An error means that the check could not run.
Result<ContractReport> CheckLoading(const Checkpoint& checkpoint, Runtime runtime, uint64_t tp);

}  // namespace blockscale
