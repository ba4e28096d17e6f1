// Which tensors differ between two checkpoints, and by how much: two conversions of one source, or
// a download and what it should be. Schemes and spellings may differ; values are compared.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "blockscale/status.h"

namespace blockscale {

// One matrix or other tensor that is not the same in both.
struct TensorDifference {
  std::string name;  // of a matrix its module, else the tensor
  std::string kind;  // "only in a", "only in b", "shape", "type", "bytes", "values", "scheme"
  std::string a, b;  // how it is there: "mxfp4 [3072, 3584]"; "" where it is not
  // Of matrices of one shape, from decoded values:
  uint64_t differing = 0;    // elements
  double relative_rmse = 0;  // ||A - B|| / ||A||
  double largest = 0;        // |A - B|
};

struct DiffOptions {
  std::string a, b;
  unsigned threads = 0;                                         // 0: the machine's cores
  std::function<void(uint64_t done, uint64_t total)> progress;  // matrices; may be empty
};

struct DiffReport {
  std::vector<TensorDifference> differences;  // in the order of their names by bytes
  uint64_t compared = 0;                      // matrices and tensors that both have
  uint64_t same = 0;                          // of them, those without any difference
};

// "scheme" says that the values are equal all the same. An error means that the comparison could
// not run.
Result<DiffReport> DiffCheckpoints(const DiffOptions& options);

}  // namespace blockscale
