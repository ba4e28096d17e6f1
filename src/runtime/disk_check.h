// What lies on disk for a module, held against what its method will load.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "runtime/loading_contract.h"
#include "runtime/module_tree.h"

namespace blockscale {

// How many scales a matrix [N, K] has.
enum class ScaleGrid {
  kNone,       // plain numbers
  kPerTensor,  // a scalar or [1]
  kPerRow,     // [N, 1]
  kPerBlock,   // [ceil(N / block.rows), ceil(K / block.columns)]
};

// The method that a module gets, and what it loads for each matrix.
struct MethodChoice {
  std::string name;             // "CompressedTensorsW8A8Int8", "UnquantizedLinearMethod", ...
  bool judged = true;           // false: not known here, nothing on disk is held against it
  DType weight = DType::kBF16;  // of a quantised matrix; any float type without scales
  ScaleGrid scales = ScaleGrid::kNone;
  std::string_view scale_suffix = ".weight_scale";
  BlockSize block;                // of kPerBlock
  bool scale_must_be_f32 = true;  // else BF16 will do
  // Modules that may be float on disk all the same: an entry is part of the name. Block-scaled FP8
  // lists them so (modules_to_not_convert).
  std::vector<std::string> not_converted;
};

// Collects findings; those of one kind become one, with the first object and a count.
class GroupedFindings {
 public:
  explicit GroupedFindings(std::vector<ContractFinding>* out) : out_(out) {}
  void Add(bool error, const std::string& object, const std::string& kind, std::string message);
  void Flush();

 private:
  struct Group {
    ContractFinding first;
    uint64_t count = 0;
  };
  std::vector<ContractFinding>* out_;
  std::vector<std::string> order_;
  std::map<std::string, Group> groups_;
};

// Types, shapes, scales and completeness of everything that the module loads, from headers.
void CheckOnDisk(const Checkpoint& checkpoint, const RuntimeModule& module,
                 const MethodChoice& method, GroupedFindings& findings);

// Reads every row scale of quantised matrices: finite, positive, and under Kunlun still finite
// after * 127. Fills the fields of `report` about scales.
Status CheckScales(const Checkpoint& checkpoint, Runtime runtime, GroupedFindings& findings,
                   ContractReport* report);

}  // namespace blockscale
