// Outputs that were computed elsewhere, from what ExportCases wrote, held against the oracle.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "verify/moe_suite.h"

namespace blockscale {

// `path` is a safetensors file with a tensor for each case, named by the case's text:
// [tokens, hidden] of spec.output's type, or [runs, tokens, hidden] for several runs (eager,
// captured, replayed, ...), which must have the same bits unless the layer's finalize is atomic.
// "kernel" in its metadata says what made it.
//
// Nothing is known of how it adds up, so that the bound is the widest: one rounding a column.
// A case without its tensor, or with one of another type or shape, has failed. An error: a file
// that cannot be read, or a tensor that is none of the cases (it would never be judged).
Result<std::vector<CaseResult>> JudgeCandidate(FileSystem& files, const std::string& path,
                                               const std::vector<MoeCase>& cases,
                                               const Oracle& oracle,
                                               const std::function<void(const CaseResult&)>& done);

}  // namespace blockscale
