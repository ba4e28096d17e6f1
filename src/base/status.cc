#include "base/status.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace blockscale {

Status IoError(const std::string& action, const std::string& path, int error_number) {
  const bool full = error_number == ENOSPC || error_number == EDQUOT;
  return {full ? StatusCode::kDiskFull : StatusCode::kIo,
          fmt::format("cannot {} {}: {}", action, path, std::strerror(error_number))};
}

void CheckFailed(const char* file, int line, const std::string& what) {
  fmt::print(stderr, "{}:{}: broken invariant {}\n", file, line, what);
  std::abort();
}

}  // namespace blockscale
