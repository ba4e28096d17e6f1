// The harness: cases, a candidate, the oracle, and for each case what was seen.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/enum_list.h"
#include "verify/moe_case.h"
#include "verify/moe_compare.h"

namespace blockscale {

//   smoke  256 x 128, 8 experts: every scheme, recipe, routing, slice and kind of row, 1 to 32
//   tokens real   Kimi-K3's sizes on rank 7 of 32, 1 and 128 tokens
#define BLOCKSCALE_SUITES(X) X(kSmoke, 0, "smoke") X(kReal, 1, "real") X(kAll, 2, "all")
BLOCKSCALE_ENUM_LIST(Suite, BLOCKSCALE_SUITES)

std::vector<MoeCase> CasesOf(Suite suite, const Activation& activation, uint64_t seed);

// What became of a case.
//   passed              every check
//   FAILED              the output is wrong, or something that must not change did
//   MISSING_ACTIVATION  the backend has no such activation
//   refused             the backend does not take this layer, for another reason
#define BLOCKSCALE_CASE_STATUSES(X)              \
  X(kPassed, 0, "passed")                        \
  X(kFailed, 1, "FAILED")                        \
  X(kMissingActivation, 2, "MISSING_ACTIVATION") \
  X(kRefused, 3, "refused")
BLOCKSCALE_ENUM_LIST(CaseStatus, BLOCKSCALE_CASE_STATUSES)

struct CaseResult {
  MoeCase moe_case;
  CaseStatus status = CaseStatus::kPassed;
  std::string message;  // why it did not pass
  Comparison comparison;
  RunInfo info;
  double seconds = 0;  // of the candidate's first run
};

// Runs a candidate: three runs with the same bits, an output that was poisoned before and guarded
// behind, inputs that are the same afterwards, a token alone with the bits that it has in the
// batch, and everything within the oracle's bound.
CaseResult RunCase(const MoeCase& moe_case, const Backend& candidate, const Oracle& oracle);

// `done` is called after each case.
std::vector<CaseResult> RunSuite(const std::vector<MoeCase>& cases, const Backend& candidate,
                                 const Oracle& oracle,
                                 const std::function<void(const CaseResult&)>& done);

}  // namespace blockscale
