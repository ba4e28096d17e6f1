// Every backend that this build can run, in the order in which one is chosen.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "moe/backend.h"

namespace blockscale {

// cpu, reference.
std::vector<std::unique_ptr<Backend>> AllBackends();

// By name; an error lists the names that there are.
Result<std::unique_ptr<Backend>> BackendNamed(std::string_view name);

}  // namespace blockscale
