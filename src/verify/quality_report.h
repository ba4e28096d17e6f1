// What matrices lost, as JSON: the "matrices" of conversion_report.json and of `verify --report`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "blockscale/verify.h"

namespace blockscale {

// {"relative_rmse": {"min", "median", "mean", "max", "worst"}, "max_half_steps", "zero_rows",
//  "clipped"}; empty numbers are null.
nlohmann::ordered_json QualitySummaryJson(const std::vector<MatrixQuality>& matrices);

// The text of `head` (an object) with one more member, "matrices": an array with one object a line.
// Numbers have as many digits as tell them apart; an SQNR of infinity is null; bytes that are no
// UTF-8 (in paths) become U+FFFD.
std::string WithMatrices(const nlohmann::ordered_json& head,
                         const std::vector<MatrixQuality>& matrices);

}  // namespace blockscale
