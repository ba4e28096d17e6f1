#include "runtime/python_regex.h"

#include <string_view>

namespace blockscale {
namespace {

// libstdc++ walks all alternatives at once under this flag, instead of backtracking.
#ifdef __GLIBCXX__
constexpr auto kFlags = std::regex::ECMAScript | std::regex_constants::__polynomial;
#else
constexpr auto kFlags = std::regex::ECMAScript;
#endif

// Walks a pattern and stops at the first construct that the two languages read differently.
class DialectScan {
 public:
  explicit DialectScan(std::string_view text) : text_(text) {}

  // "" when there is none.
  std::string FindDifference() {
    while (at_ < text_.size() && difference_.empty()) Step();
    return difference_;
  }

 private:
  char Peek(size_t ahead) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  void Differs(size_t length, const char* why) {
    difference_ = fmt::format("'{}' {}", text_.substr(at_, length), why);
  }

  void Step() {
    const char c = text_[at_];
    if (c == '\\') return Escape();
    if (c == '[') return Class();
    if (c == '(' && Peek(1) == '?' && Peek(2) != ':' && Peek(2) != '=' && Peek(2) != '!')
      return Differs(3, "is a group of Python's alone");
    if (c == '(' && Peek(1) == '?') {
      at_ += 3;
      return;
    }
    if (c == '*' || c == '+' || c == '?' || c == '}') return Quantifier();
    ++at_;
  }

  void Escape() {
    const char c = Peek(1);
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (letter && std::string_view("dDsSwWbBnrtfvxu").find(c) == std::string_view::npos)
      return Differs(2, "is an escape of Python's alone");
    if (c >= '0' && c <= '9') return Differs(2, "is a back reference or an octal number");
    at_ += 2;
  }

  void Class() {
    ++at_;
    if (Peek(0) == '^') ++at_;
    if (Peek(0) == ']') return Differs(1, "first in a class is a character in Python");
    while (at_ < text_.size() && text_[at_] != ']' && difference_.empty()) {
      const char c = text_[at_], next = Peek(1);
      if (c == '\\')
        Escape();
      else if (c == '[' && (next == ':' || next == '.' || next == '='))
        Differs(2, "in a class is two characters in Python");
      else
        ++at_;
    }
    ++at_;
  }

  // One quantifier, perhaps lazy; a second one is possessive in Python and nested here.
  void Quantifier() {
    ++at_;
    if (Peek(0) == '?') ++at_;
    if (Peek(0) == '*' || Peek(0) == '+' || Peek(0) == '?')
      Differs(1, "after a quantifier is possessive or an error in Python");
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string difference_;
};

}  // namespace

Result<std::regex> CompilePythonRegex(const std::string& pattern) {
  if (pattern.size() > kMaxRegexLength)
    return InvalidInput("'{}...' cannot be judged here: it is longer than {} characters",
                        pattern.substr(0, 60), kMaxRegexLength);
  if (const std::string difference = DialectScan(pattern).FindDifference(); !difference.empty())
    return InvalidInput("'{}' cannot be judged here: {}", pattern, difference);
  try {
    return std::regex(pattern, kFlags);
  } catch (const std::regex_error& error) {
    return InvalidInput("'{}' cannot be judged here: {}", pattern, error.what());
  }
}

bool MatchesFromStart(const std::regex& regex, const std::string& text) {
  return text.size() <= kMaxNameLength &&
         std::regex_search(text, regex, std::regex_constants::match_continuous);
}

}  // namespace blockscale
