#include "cli/failure_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "base/status.h"

namespace blockscale::cli {

void PrintFailures(const VerifyReport& report, std::FILE* stream) {
  constexpr size_t kShown = 20;
  for (size_t i = 0; i < std::min(kShown, report.failures.size()); ++i)
    fmt::print(stream, "FAILED         {}: {}\n", OneLine(report.failures[i].object),
               OneLine(report.failures[i].message));
  if (report.failures.size() > kShown)
    fmt::print(stream,
               "               and {} more; `blockscale verify --report FILE.json` lists all\n",
               report.failures.size() - kShown);
}

}  // namespace blockscale::cli
