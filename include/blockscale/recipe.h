// What a conversion makes of which matrix: a list of rules, from flags or from a JSON file.
//
//   {"format": "blockscale-recipe", "version": 1, "dialect": "compressed-tensors",
//    "rules": [{"class": "experts", "scheme": "mxfp4", "scale_rule": "ceil"},
//              {"match": "self_attn[.]o_proj$", "scheme": "keep"},
//              {"class": "attention", "scheme": "fp8-channel"},
//              {"scheme": "keep"}]}
//
// The first rule that fits a matrix decides; a matrix that none fits is kept. docs/recipes.md has
// the schema and what can become what.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "blockscale/status.h"

namespace blockscale {

struct RecipeRule {
  // "experts", "attention", "other", "router", "embedding", "norm", or "" for any. A rule without
  // class and match fits every quantised matrix; in a checkpoint without any, every linear weight
  // of experts, attention and other.
  std::string tensor_class;
  std::string match;         // RE2 regex, found in the module's name; "" fits all
  std::string scheme;        // "keep", or a scheme: "mxfp4", "fp8-block", "bf16", ...
  std::string scale_rule;    // "" for the scheme's default
  std::string scale_format;  // fp8-block: "f32" (default), "bf16", "e8m0"; else ""
  uint64_t group_size = 0;   // int4-group: 32 or 128 (default 128); else 0
};

struct Recipe {
  std::vector<RecipeRule> rules;
  std::string dialect;  // "" for the usual one of the schemes
};

// Refuses unknown names and keys, rules that a scheme does not have, and a regex that is none.
Result<Recipe> ParseRecipe(std::string_view json, const std::string& file);

// The JSON text of a recipe, as ParseRecipe reads it.
std::string RecipeJson(const Recipe& recipe);

// A recipe of one rule for everything: `--to SCHEME`.
Recipe RecipeFor(const std::string& scheme);

// The same checks for a recipe that was put together in code.
Status CheckRecipe(const Recipe& recipe);

}  // namespace blockscale
