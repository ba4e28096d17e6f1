// Checks a converted checkpoint against its source, matrix by matrix, with arithmetic of its own:
// scalar, double precision, and sharing no code with the converter's kernel.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "blockscale/status.h"

namespace blockscale {

// What one matrix lost.
struct MatrixQuality {
  std::string name;  // of the weight tensor
  uint64_t rows = 0;
  uint64_t columns = 0;
  double relative_rmse = 0;   // ||W - q*s|| / ||W||; 0 for an all-zero matrix
  double sqnr_db = 0;         // -20 log10(relative_rmse); +inf (null in JSON) when it is 0
  double max_half_steps = 0;  // max |W - q*s| / (s / 2); the limit is 1 + 1e-5, and 1 + 2^-16 for
                              // clipped codes, where the rounding of s weighs most
  uint64_t zero_rows = 0;
  uint64_t clipped = 0;         // codes at the end of the range whose value lies beyond it
  std::string from, to;         // schemes
  uint64_t inexact_blocks = 0;  // blocks (of one row) in which any value changed
};

// -20 log10(relative_rmse), +infinity for 0.
double SqnrDb(double relative_rmse);

struct VerifyOptions {
  std::string source;     // the FP8 checkpoint
  std::string converted;  // the INT8 checkpoint
  uint64_t sample = 0;    // 0: every matrix; else this many, spread evenly over the names
  std::string match;      // an RE2 regular expression on tensor names; "" matches all
  unsigned threads = 0;   // 0: the machine's cores
  std::function<void(uint64_t done, uint64_t total)> progress;  // matrices; may be empty
};

// One thing that does not hold: `object` is a tensor, file or field.
struct VerifyFailure {
  std::string object;
  std::string message;
};

struct VerifyReport {
  std::vector<MatrixQuality> matrices;  // in the order of their names, by bytes
  std::vector<VerifyFailure> failures;  // empty: everything holds
  uint64_t matrices_total = 0;          // in the source
  uint64_t kept_checked = 0;            // unconverted tensors compared bit for bit
};

// An error means that the check could not run; what does not hold is in the report.
Result<VerifyReport> VerifyCheckpoint(const VerifyOptions& options);

}  // namespace blockscale
