// VerifyCheckpoint over a file system of the caller's choice.
#pragma once

#include "base/status.h"
#include "blockscale/verify.h"
#include "checkpoint/file_system.h"

namespace blockscale {

Result<VerifyReport> VerifyCheckpointOn(FileSystem& files, const VerifyOptions& options);

}  // namespace blockscale
