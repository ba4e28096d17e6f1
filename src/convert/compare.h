// What the schemes that were not chosen would cost.
#pragma once

#include <vector>

#include "base/status.h"
#include "blockscale/convert.h"
#include "checkpoint/checkpoint.h"
#include "convert/plan.h"

namespace blockscale {

// Encodes some rows of some matrices of the plan with every scheme and rule that fits, and measures
// what comes back. Deterministic: the sample is spread evenly over the names. Reads at most
// `matrices` pieces of 64 Ki elements.
Result<std::vector<SchemeCost>> CompareOnSample(const Checkpoint& source,
                                                const ConversionPlan& plan, size_t matrices);

}  // namespace blockscale
