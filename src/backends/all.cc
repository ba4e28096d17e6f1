#include "backends/all.h"

#include <string>

#include "backends/cpu/cpu_backend.h"
#include "backends/reference/reference.h"
#include "base/status.h"

namespace blockscale {

std::vector<std::unique_ptr<Backend>> AllBackends() {
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(MakeCpuBackend());
  backends.push_back(MakeReferenceBackend());
  return backends;
}

Result<std::unique_ptr<Backend>> BackendNamed(std::string_view name) {
  std::string names;
  for (auto& backend : AllBackends()) {
    if (backend->name() == name) return std::move(backend);
    names += (names.empty() ? "" : ", ") + std::string(backend->name());
  }
  return InvalidInput("backend '{}' is not in this build; there are {}", name, names);
}

}  // namespace blockscale
