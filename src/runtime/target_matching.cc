#include "runtime/target_matching.h"

#include <algorithm>
#include <cctype>

#include "runtime/python_regex.h"

namespace blockscale {
namespace {

constexpr std::string_view kRegexMark = "re:";
constexpr std::string_view kLinear = "Linear";

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string Treatment(const MatchOutcome& outcome) {
  if (outcome.ignored) return "ignored";
  return outcome.group == nullptr ? "not quantised" : "quantised by " + outcome.group->name;
}

// The runtime compares schemes by value, not by the group that they come from.
bool SameScheme(const MatchOutcome& a, const MatchOutcome& b) {
  if (a.group == nullptr || b.group == nullptr) return a.group == b.group;
  return a.group->weights == b.group->weights &&
         a.group->input_activations == b.group->input_activations;
}

std::string Conflict(const std::string& module, const std::string& one,
                     const std::string& treated_so, const std::string& other,
                     const std::string& treated_otherwise) {
  return fmt::format(
      "{}: '{}' is {} and '{}' is {}; all parts need the same scheme, and the runtime raises; "
      "name all of them in ignore, or none",
      module, one, treated_so, other, treated_otherwise);
}

}  // namespace

Result<NamePattern> NamePattern::Parse(const std::string& entry) {
  NamePattern pattern;
  pattern.text_ = entry;
  if (!entry.starts_with(kRegexMark)) return pattern;
  BLOCKSCALE_ASSIGN_OR_RETURN(pattern.regex_, CompilePythonRegex(entry.substr(kRegexMark.size())));
  return pattern;
}

bool NamePattern::MatchesName(const std::string& name) const {
  return regex_ ? MatchesFromStart(*regex_, name) : text_ == name;
}

bool NamePattern::MatchesClass(const std::string& class_name) const {
  if (regex_) return MatchesName(class_name);
  return Lower(class_name).find(Lower(text_)) != std::string::npos;
}

Result<TargetMatcher> TargetMatcher::Make(const CompressedTensorsConfig& config) {
  TargetMatcher matcher;
  for (const QuantizationGroup& group : config.groups) {
    for (const std::string& target : group.targets) {
      if (target == kLinear) matcher.linear_ = &group;
      const size_t place = matcher.targets_.size();
      const auto [same, isnew] = matcher.target_of_text_.emplace(target, place);
      if (!isnew) {
        matcher.targets_[same->second].group =
            &group;  // the place of the first, scheme of the last
        continue;
      }
      BLOCKSCALE_ASSIGN_OR_RETURN(NamePattern pattern, NamePattern::Parse(target));
      if (pattern.is_expression()) matcher.target_expressions_.push_back(place);
      if (pattern.is_expression() || target.find('.') == std::string::npos)
        matcher.class_targets_.push_back(place);
      matcher.targets_.push_back({std::move(pattern), &group});
    }
  }
  for (const std::string& entry : config.ignore) {
    BLOCKSCALE_ASSIGN_OR_RETURN(NamePattern pattern, NamePattern::Parse(entry));
    const size_t place = matcher.ignore_.size();
    if (pattern.is_expression()) matcher.ignore_expressions_.push_back(place);
    matcher.ignores_of_text_[entry].push_back(place);
    matcher.ignore_.push_back(std::move(pattern));
  }
  return matcher;
}

bool TargetMatcher::IsIgnored(const std::string& name) {
  // An expression's own text ("re:...") is no module's name.
  const auto exact = ignores_of_text_.find(name);
  bool ignored = exact != ignores_of_text_.end() && !name.starts_with(kRegexMark);
  if (ignored) used_ignores_.insert(exact->second.begin(), exact->second.end());
  for (const size_t i : ignore_expressions_) {
    if (!ignore_[i].MatchesName(name)) continue;
    used_ignores_.insert(i);
    ignored = true;
  }
  return ignored;
}

bool TargetMatcher::IsListedExactly(const std::string& name) {
  const auto exact = ignores_of_text_.find(name);
  if (exact == ignores_of_text_.end()) return false;
  used_ignores_.insert(exact->second.front());
  return true;
}

const QuantizationGroup* TargetMatcher::FindByName(const std::string& name) const {
  // The first in the list's order decides, be it a name or an expression.
  size_t first = targets_.size();
  if (const auto exact = target_of_text_.find(name);
      exact != target_of_text_.end() && targets_[exact->second].pattern.MatchesName(name))
    first = exact->second;
  for (const size_t i : target_expressions_) {
    if (i >= first) break;
    if (targets_[i].pattern.MatchesName(name)) first = i;
  }
  return first < targets_.size() ? targets_[first].group : nullptr;
}

const QuantizationGroup* TargetMatcher::FindByClass(const std::string& class_name) const {
  if (class_name.find('.') != std::string::npos) {  // no class that is known has one
    for (const Target& target : targets_)
      if (target.pattern.MatchesClass(class_name)) return target.group;
    return nullptr;
  }
  for (const size_t i : class_targets_)
    if (targets_[i].pattern.MatchesClass(class_name)) return targets_[i].group;
  return nullptr;
}

// The scheme of the first part, provided that every part has one.
const QuantizationGroup* TargetMatcher::FindByParts(const std::vector<std::string>& parts) const {
  const QuantizationGroup* first = nullptr;
  for (const std::string& part : parts) {
    const QuantizationGroup* group = FindByName(part);
    if (group == nullptr) return nullptr;
    if (first == nullptr) first = group;
  }
  return first;
}

MatchOutcome TargetMatcher::MatchLinear(const ModuleToMatch& module) {
  if (module.parts.empty() || IsListedExactly(module.name)) {
    if (IsIgnored(module.name)) return {.ignored = true};
  } else {
    const bool first = IsIgnored(module.parts[0]);
    for (const std::string& part : module.parts) {
      if (IsIgnored(part) == first) continue;
      constexpr const char* kTreatments[] = {"quantised", "ignored"};
      return {.conflict = Conflict(module.name, module.parts[0], kTreatments[first], part,
                                   kTreatments[!first])};
    }
    if (first) return {.ignored = true};
  }
  MatchOutcome outcome{.group = FindByName(module.name)};
  if (outcome.group == nullptr) outcome.group = FindByClass(module.class_name);
  if (outcome.group == nullptr) outcome.group = FindByParts(module.parts);
  return outcome;
}

MatchOutcome TargetMatcher::MatchExpert(const std::string& name, const std::string& class_name) {
  if (IsIgnored(name)) return {.ignored = true};
  MatchOutcome outcome{.group = FindByName(name)};
  if (outcome.group == nullptr) outcome.group = FindByClass(class_name);
  // The copied key stands behind all others, and only where none is spelled like the class.
  if (outcome.group == nullptr) outcome.group = linear_;
  return outcome;
}

MatchOutcome TargetMatcher::MatchExperts(const std::string& prefix, const std::string& class_name) {
  const std::string gate = prefix + ".0.gate_proj";
  MatchOutcome first = MatchExpert(gate, class_name);
  for (const char* part : {".0.up_proj", ".0.down_proj"}) {
    const MatchOutcome other = MatchExpert(prefix + part, class_name);
    if (SameScheme(first, other)) continue;
    first.conflict = Conflict(prefix, gate, Treatment(first), prefix + part, Treatment(other));
    return first;
  }
  return first;
}

std::vector<std::string> TargetMatcher::UnusedIgnores() const {
  std::vector<std::string> unused;
  for (size_t i = 0; i < ignore_.size(); ++i)
    if (!used_ignores_.contains(i)) unused.push_back(ignore_[i].text());
  return unused;
}

void TargetMatcher::NoteUnquantised(const std::string& name) { IsIgnored(name); }

}  // namespace blockscale
