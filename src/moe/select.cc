#include "moe/select.h"

#include "base/status.h"
#include "moe/external_kernels.h"

namespace blockscale {
namespace {

// For checking others, not for serving.
constexpr std::string_view kOracle = "reference";

Verdict Judge(const Backend& backend, const MoeSpec& spec, Device device) {
  Verdict verdict{.name = std::string(backend.name())};
  if (!IsCpu(device)) {
    verdict.reason = fmt::format("runs on a CPU, not on {}", NameOf(device));
    return verdict;
  }
  const Status supported = backend.Supports(spec);
  verdict.runs = supported.ok();
  verdict.reason = supported.message();
  if (verdict.runs && backend.name() == kOracle)
    verdict.reason = "the oracle: exact and slow, chosen only by name";
  return verdict;
}

Verdict Judge(const ExternalKernel& kernel, const MoeSpec& spec, Device device) {
  Verdict verdict{.name = std::string(kernel.name), .external = true};
  const Status supported = kernel.supports(spec, device);
  verdict.runs = supported.ok();
  verdict.reason = supported.ok() ? kernel.note(spec, device) : supported.message();
  verdict.wants = std::string(kernel.wants);
  return verdict;
}

Status Force(std::string_view forced, Selection* selection) {
  std::string names;
  for (size_t i = 0; i < selection->table.size(); ++i) {
    const Verdict& verdict = selection->table[i];
    names += (names.empty() ? "" : ", ") + verdict.name;
    if (verdict.name != forced) continue;
    if (!verdict.runs)
      return Refused("backend {} was asked for and refuses: {}", forced, verdict.reason);
    selection->chosen = i;
    return OkStatus();
  }
  return InvalidInput("backend '{}' is not known; there are {}", forced, names);
}

}  // namespace

Result<Selection> SelectBackend(const MoeSpec& spec, Device device,
                                const std::vector<std::unique_ptr<Backend>>& backends,
                                std::string_view forced) {
  BLOCKSCALE_RETURN_IF_ERROR(ValidateMoeSpec(spec));
  Selection selection;
  for (const auto& backend : backends) selection.table.push_back(Judge(*backend, spec, device));
  for (const ExternalKernel& kernel : ExternalKernels())
    selection.table.push_back(Judge(kernel, spec, device));
  if (!forced.empty()) {
    BLOCKSCALE_RETURN_IF_ERROR(Force(forced, &selection));
    return selection;
  }
  for (size_t i = 0; i < selection.table.size() && !selection.chosen; ++i)
    if (selection.table[i].runs && selection.table[i].name != kOracle) selection.chosen = i;
  return selection;
}

}  // namespace blockscale
