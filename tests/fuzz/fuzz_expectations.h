// What every parser promises about any input. A breach aborts, which a fuzzer records.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "blockscale/status.h"

namespace blockscale::fuzz {

inline void Expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

// An error is the input's, names its file, and is one line.
inline void ExpectClearError(const Status& status, const std::string& file) {
  Expect(status.code() == StatusCode::kInvalidInput, "an error of another kind");
  Expect(status.message().find(file) != std::string::npos, "an error that does not name its file");
  Expect(status.message().find('\n') == std::string::npos, "an error of more than one line");
}

}  // namespace blockscale::fuzz
