#include "blockscale/version.h"

#include "base/version_number.h"

namespace blockscale {

const char* Version() { return BLOCKSCALE_VERSION; }

}  // namespace blockscale
