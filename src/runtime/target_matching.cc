#include "runtime/target_matching.h"

#include <algorithm>
#include <cctype>

namespace blockscale {
namespace {

constexpr std::string_view kRegexMark = "re:";

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

}  // namespace

Result<NamePattern> NamePattern::Parse(const std::string& entry) {
  NamePattern pattern;
  pattern.text_ = entry;
  if (!entry.starts_with(kRegexMark)) return pattern;
  try {
    pattern.regex_ = std::regex(entry.substr(kRegexMark.size()));
  } catch (const std::regex_error& error) {
    return InvalidInput(
        "'{}' cannot be judged here: {} (only what Python and ECMAScript share is "
        "understood)",
        entry, error.what());
  }
  return pattern;
}

bool NamePattern::MatchesName(const std::string& name) const {
  if (!regex_) return text_ == name;
  return std::regex_search(name, *regex_, std::regex_constants::match_continuous);
}

bool NamePattern::MatchesClass(const std::string& class_name) const {
  if (regex_) return MatchesName(class_name);
  return Lower(class_name).find(Lower(text_)) != std::string::npos;
}

Result<TargetMatcher> TargetMatcher::Make(const CompressedTensorsConfig& config) {
  TargetMatcher matcher;
  for (const QuantizationGroup& group : config.groups) {
    for (const std::string& target : group.targets) {
      BLOCKSCALE_ASSIGN_OR_RETURN(NamePattern pattern, NamePattern::Parse(target));
      matcher.targets_.push_back({std::move(pattern), &group});
      // The rule that makes plain "Linear" reach experts: the runtime copies exactly this key.
      if (target == "Linear") {
        BLOCKSCALE_ASSIGN_OR_RETURN(NamePattern experts, NamePattern::Parse("RoutedExperts"));
        matcher.targets_.push_back({std::move(experts), &group});
      }
    }
  }
  for (const std::string& entry : config.ignore) {
    BLOCKSCALE_ASSIGN_OR_RETURN(NamePattern pattern, NamePattern::Parse(entry));
    matcher.ignore_.push_back(std::move(pattern));
  }
  return matcher;
}

bool TargetMatcher::IsIgnored(const std::string& name) {
  bool ignored = false;
  for (size_t i = 0; i < ignore_.size(); ++i) {
    if (!ignore_[i].MatchesName(name)) continue;
    used_ignores_.insert(i);
    ignored = true;
  }
  return ignored;
}

// By name first, then by class, as the runtime does.
const QuantizationGroup* TargetMatcher::FindTarget(const std::string& name,
                                                   const std::string& class_name) const {
  for (const Target& target : targets_)
    if (target.pattern.MatchesName(name)) return target.group;
  for (const Target& target : targets_)
    if (target.pattern.MatchesClass(class_name)) return target.group;
  return nullptr;
}

MatchOutcome TargetMatcher::MatchParts(const std::vector<std::string>& names,
                                       const std::string& class_name, const std::string& what) {
  MatchOutcome first;
  for (size_t i = 0; i < names.size(); ++i) {
    MatchOutcome outcome{.ignored = IsIgnored(names[i])};
    if (!outcome.ignored) outcome.group = FindTarget(names[i], class_name);
    if (i == 0) first = outcome;
    if (outcome.group == first.group) continue;
    first.conflict = fmt::format(
        "{}: '{}' is {} and '{}' is {}; all parts need the same scheme, and the runtime raises",
        what, names[0], first.group != nullptr ? "quantised" : "not quantised", names[i],
        outcome.group != nullptr ? "quantised" : "not quantised");
    return first;
  }
  return first;
}

MatchOutcome TargetMatcher::MatchLinear(const ModuleToMatch& module) {
  if (IsIgnored(module.name)) return {.ignored = true};
  if (module.parts.empty()) return MatchParts({module.name}, module.class_name, module.name);
  return MatchParts(module.parts, module.class_name, module.name);
}

MatchOutcome TargetMatcher::MatchExperts(const std::string& prefix, const std::string& class_name) {
  return MatchParts({prefix + ".0.gate_proj", prefix + ".0.up_proj", prefix + ".0.down_proj"},
                    class_name, prefix);
}

std::vector<std::string> TargetMatcher::UnusedIgnores() const {
  std::vector<std::string> unused;
  for (size_t i = 0; i < ignore_.size(); ++i)
    if (!used_ignores_.contains(i)) unused.push_back(ignore_[i].text());
  return unused;
}

void TargetMatcher::NoteUnquantised(const std::string& name) { IsIgnored(name); }

}  // namespace blockscale
