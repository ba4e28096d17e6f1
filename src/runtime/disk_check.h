// What lies on disk for a module, held against what its method will load.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "runtime/loading_contract.h"
#include "runtime/module_tree.h"

namespace blockscale {

// What a method loads for each matrix.
enum class DiskScheme {
  kFloat,        // weight of a float type, no scale
  kInt8Channel,  // weight I8 [N, K], weight_scale F32 [N, 1]
  kFp8Channel,   // weight F8_E4M3 [N, K], weight_scale [N, 1]
  kFp8Block,     // weight F8_E4M3 [N, K], weight_scale_inv of blocks
  kUnknown,      // not judged
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

// Types, shapes, scales and completeness of everything that the module loads.
void CheckOnDisk(const Checkpoint& checkpoint, const RuntimeModule& module,
                 const std::string& method, DiskScheme scheme, GroupedFindings& findings);

// The parameters of the module on one rank of `tp`, "w13_weight int8 [256, 384, 3072]".
std::vector<std::string> RankParameters(const Checkpoint& checkpoint, const RuntimeModule& module,
                                        DiskScheme scheme, uint64_t tp);

// Reads every INT8 row scale: finite, positive, and under Kunlun still finite after * 127.
Status CheckScales(const Checkpoint& checkpoint, Runtime runtime, ContractReport* report);

}  // namespace blockscale
