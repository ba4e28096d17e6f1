#include "model/families.h"

#include <algorithm>

namespace blockscale {

std::optional<Family> FamilyOf(const HfConfig& config) {
  for (const Family family : AllFamily())
    if (config.model_type == NamesOf(family).model_type) return family;
  for (const Family family : AllFamily()) {
    const auto& names = config.architectures;
    if (std::find(names.begin(), names.end(), NamesOf(family).architecture) != names.end())
      return family;
  }
  return std::nullopt;
}

}  // namespace blockscale
