// How vLLM's compressed-tensors decides which scheme a module gets: targets, ignore list, fused
// modules, experts. Source of the rules: docs/formats.md, "How vLLM matches targets".
#pragma once

#include <optional>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "runtime/compressed_tensors_config.h"

namespace blockscale {

// One entry of a target or ignore list: a name, or "re:" and a regular expression that must match
// from the start of the name (and need not reach its end).
class NamePattern {
 public:
  // An error when the expression uses what only Python's `re` understands.
  static Result<NamePattern> Parse(const std::string& entry);
  const std::string& text() const { return text_; }
  bool is_expression() const { return regex_.has_value(); }
  bool MatchesName(const std::string& name) const;
  // Targets are also tried as a part of the module's class name, whatever the case.
  bool MatchesClass(const std::string& class_name) const;

 private:
  std::string text_;
  std::optional<std::regex> regex_;
};

// A module as the runtime builds it. `parts` are the names that a fused module is made of
// (q_proj, k_proj, v_proj of qkv_proj), full paths; empty for one that is not fused.
struct ModuleToMatch {
  std::string name;
  std::string class_name;
  std::vector<std::string> parts;
};

// Null group: unquantised.
struct MatchOutcome {
  const QuantizationGroup* group = nullptr;
  bool ignored = false;
  std::string conflict;  // not empty: the runtime raises this
};

class TargetMatcher {
 public:
  // `config` must outlive the matcher.
  static Result<TargetMatcher> Make(const CompressedTensorsConfig& config);

  // Ignored when the ignore list holds a fused module's own name, letter by letter (an expression
  // is tried on its parts alone), or when it matches all parts; some of them: a conflict. Then
  // targets are tried on the name, on the class, and on the parts, all of which must match.
  MatchOutcome MatchLinear(const ModuleToMatch& module);
  // Experts are judged by the names of expert 0 alone, always spelled gate_proj, up_proj,
  // down_proj, under the runtime's own prefix. The literal target "Linear" reaches them, because
  // the runtime copies that key, and no other, to `class_name`.
  MatchOutcome MatchExperts(const std::string& prefix, const std::string& class_name);

  // Entries of the ignore list that matched no module asked about so far and no name noted below.
  std::vector<std::string> UnusedIgnores() const;
  // A module that the runtime never asks about (a gate without quant_config): counts as a use.
  void NoteUnquantised(const std::string& name);

 private:
  bool IsIgnored(const std::string& name);
  bool IsListedExactly(const std::string& name);
  const QuantizationGroup* FindByName(const std::string& name) const;
  const QuantizationGroup* FindByClass(const std::string& class_name) const;
  const QuantizationGroup* FindByParts(const std::vector<std::string>& parts) const;
  MatchOutcome MatchExpert(const std::string& name, const std::string& class_name);

  struct Target {
    NamePattern pattern;
    const QuantizationGroup* group;
  };
  std::vector<Target> targets_;  // each text once: the runtime keeps them in a dict
  // Checkpoints list tens of thousands of exact names: they are looked up, and only the expressions
  // are tried one by one.
  std::unordered_map<std::string, size_t> target_of_text_;
  std::vector<size_t> target_expressions_;
  std::vector<size_t> class_targets_;          // that may be a part of a class name: without a dot
  const QuantizationGroup* linear_ = nullptr;  // of the literal target "Linear"
  std::vector<NamePattern> ignore_;
  std::unordered_map<std::string, std::vector<size_t>> ignores_of_text_;
  std::vector<size_t> ignore_expressions_;
  std::set<size_t> used_ignores_;
};

}  // namespace blockscale
