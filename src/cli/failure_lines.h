// The failures of a verification as lines of text.
#pragma once

#include <cstdio>

#include "blockscale/verify.h"

namespace blockscale::cli {

// At most 20 lines, one failure each; a last one counts the rest and says where they are all
// listed.
void PrintFailures(const VerifyReport& report, std::FILE* stream);

}  // namespace blockscale::cli
