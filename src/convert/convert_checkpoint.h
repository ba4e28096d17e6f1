// The conversion over a file system of the caller's choice: what blockscale/convert.h offers over
// the machine's own, and what tests run over one that fails.
#pragma once

#include "base/status.h"
#include "blockscale/convert.h"
#include "checkpoint/file_system.h"

namespace blockscale {

Result<ConvertPlanSummary> PlanConversionOn(FileSystem& files, const ConvertOptions& options);
Result<ConvertSummary> ConvertCheckpointOn(FileSystem& files, const ConvertOptions& options);

}  // namespace blockscale
