// The flags of `convert` that say what becomes what.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "blockscale/recipe.h"
#include "blockscale/status.h"

namespace blockscale::cli {

struct RecipeFlags {
  std::string to, experts, attention, rest, recipe_file, dialect, scale_rule, scale_format;
  uint64_t group_size = 0;
};

void AddRecipeFlags(CLI::App* app, RecipeFlags* flags);

// The recipe that the flags stand for; reads --recipe's file. Refuses combinations that contradict
// each other, and none at all.
Result<Recipe> MakeRecipe(const RecipeFlags& flags);

}  // namespace blockscale::cli
