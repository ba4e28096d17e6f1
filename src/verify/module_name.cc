#include "verify/module_name.h"

#include <string_view>
#include <utility>

namespace blockscale {
namespace {

constexpr std::pair<std::string_view, std::string_view> kProjections[] = {
    {"w1", "gate_proj"}, {"w3", "up_proj"}, {"w2", "down_proj"}};

// Where the projection begins in "....experts.3.w1", or npos when it is no expert's.
size_t ProjectionOf(const std::string& module) {
  const size_t dot = module.rfind('.');
  if (dot == std::string::npos || dot == 0) return std::string::npos;
  const char before = module[dot - 1];
  return before >= '0' && before <= '9' ? dot + 1 : std::string::npos;
}

}  // namespace

std::string UsualModuleName(const std::string& module) {
  const size_t begin = ProjectionOf(module);
  if (begin == std::string::npos) return module;
  for (const auto& [name, usual] : kProjections)
    if (module.substr(begin) == name) return module.substr(0, begin) + std::string(usual);
  return module;
}

std::string ShortModuleName(const std::string& module) {
  const size_t begin = ProjectionOf(module);
  if (begin == std::string::npos) return module;
  for (const auto& [name, usual] : kProjections)
    if (module.substr(begin) == usual) return module.substr(0, begin) + std::string(name);
  return module;
}

}  // namespace blockscale
