// The two names that an expert's projections go by. Stacked experts have neither, and take the
// usual one.
#pragma once

#include <string>

namespace blockscale {

// "a.experts.3.w1" -> "a.experts.3.gate_proj"; other names as they are.
std::string UsualModuleName(const std::string& module);

// "a.experts.3.gate_proj" -> "a.experts.3.w1"; other names as they are.
std::string ShortModuleName(const std::string& module);

}  // namespace blockscale
