// Regular expressions as Python's `re.match` reads them, run by std::regex. Only the syntax that
// both read alike is compiled; the rest is refused, because std::regex takes some of it in silence
// and means something else (\A is the letter A, a++ is (a+)+).
#pragma once

#include <regex>
#include <string>

#include "base/status.h"

namespace blockscale {

inline constexpr size_t kMaxRegexLength = 1000;
inline constexpr size_t kMaxNameLength = 1000;  // of what is matched

// An error quotes `pattern` and names the construct. Matching with the result takes time polynomial
// in the lengths, whatever the pattern.
Result<std::regex> CompilePythonRegex(const std::string& pattern);

// `re.match`: from the first character on, not necessarily to the last. False for text longer than
// kMaxNameLength; who asks checks that before.
bool MatchesFromStart(const std::regex& regex, const std::string& text);

}  // namespace blockscale
