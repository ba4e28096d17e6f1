// Counts one kind of trouble and remembers its first place.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "blockscale/verify.h"

namespace blockscale {

struct Trouble {
  uint64_t count = 0;
  std::string first;

  // `describe` is called for the first one only.
  template <typename Describe>
  void Note(Describe describe) {
    if (count++ == 0) first = describe();
  }
  void Tell(const std::string& object, const char* what,
            std::vector<VerifyFailure>* failures) const {
    if (count > 0)
      failures->push_back({object, fmt::format("{} {} (the first: {})", count, what, first)});
  }
};

}  // namespace blockscale
