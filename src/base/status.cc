#include "base/status.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace blockscale {

std::string OneLine(std::string text) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; };
  if (std::none_of(text.begin(), text.end(), is_control)) return text;
  std::string line;
  for (const char c : text)
    line +=
        is_control(c) ? fmt::format("\\x{:02x}", static_cast<unsigned char>(c)) : std::string(1, c);
  return line;
}

Status IoError(const std::string& action, const std::string& path, int error_number) {
  const bool full = error_number == ENOSPC || error_number == EDQUOT;
  return {full ? StatusCode::kDiskFull : StatusCode::kIo,
          OneLine(fmt::format("cannot {} {}: {}", action, path, std::strerror(error_number)))};
}

void CheckFailed(const char* file, int line, const std::string& what) {
  fmt::print(stderr, "{}:{}: broken invariant {}\n", file, line, what);
  std::abort();
}

}  // namespace blockscale
