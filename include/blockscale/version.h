// The version of the library that is linked, "0.1.0".
#pragma once

namespace blockscale {

const char* Version();

}  // namespace blockscale
