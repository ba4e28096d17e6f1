// Which backend a layer gets: decided before any weight is loaded, with the reason for every other.
// Nothing falls back later.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moe/backend.h"
#include "moe/device.h"

namespace blockscale {

struct Verdict {
  std::string name;
  bool external = false;  // of another project: named, not run from here
  bool runs = false;
  std::string reason;  // why not; or, where it runs, what to know (may be "")
  std::string wants;   // external: layout
};

struct Selection {
  std::vector<Verdict> table;    // this build's backends in order, then the external kernels
  std::optional<size_t> chosen;  // in `table`: the first that runs
};

// An error means that `spec` is no layer, or that `forced` is no name of the table or cannot run.
// `oracle` backends (reference) are never chosen unless forced.
Result<Selection> SelectBackend(const MoeSpec& spec, Device device,
                                const std::vector<std::unique_ptr<Backend>>& backends,
                                std::string_view forced = {});

}  // namespace blockscale
