#include "cli/recipe_flags.h"

#include <vector>

#include "base/status.h"
#include "checkpoint/dialect.h"
#include "checkpoint/file_system.h"
#include "numeric/scale_rule.h"

namespace blockscale::cli {
namespace {

template <typename Values>
std::vector<std::string> NamesOf(const Values& values) {
  std::vector<std::string> names;
  for (const auto value : values) names.emplace_back(NameOf(value));
  return names;
}

std::vector<std::string> Schemes(bool keep) {
  std::vector<std::string> names = NamesOf(AllScheme());
  if (keep) names.emplace_back("keep");
  return names;
}

std::vector<std::string> WrittenDialects() {
  std::vector<std::string> names;
  for (const Dialect dialect : AllDialect())
    if (IsWritten(dialect)) names.emplace_back(NameOf(dialect));
  return names;
}

// --scale-rule, --scale-format and --group-size go to every rule whose scheme has such a thing.
Status SpreadOptions(const RecipeFlags& flags, Recipe& recipe) {
  const auto rule = ParseScaleRule(flags.scale_rule);
  bool rule_used = flags.scale_rule.empty(), format_used = flags.scale_format.empty();
  bool group_used = flags.group_size == 0;
  for (RecipeRule& one : recipe.rules) {
    const auto scheme = ParseScheme(one.scheme);
    if (!scheme) continue;
    if (rule && RuleFits(*rule, *scheme)) {
      one.scale_rule = flags.scale_rule;
      rule_used = true;
    }
    if (*scheme == Scheme::kFp8Block && !flags.scale_format.empty()) {
      one.scale_format = flags.scale_format;
      format_used = true;
    }
    if (*scheme == Scheme::kInt4Group && flags.group_size != 0) {
      one.group_size = flags.group_size;
      group_used = true;
    }
  }
  if (!rule_used)
    return InvalidInput("--scale-rule {} fits none of the schemes that were asked for",
                        flags.scale_rule);
  if (!format_used) return InvalidInput("--scale-format is for fp8-block, which was not asked for");
  if (!group_used) return InvalidInput("--group-size is for int4-group, which was not asked for");
  return OkStatus();
}

}  // namespace

void AddRecipeFlags(CLI::App* app, RecipeFlags* flags) {
  const CLI::IsMember schemes(Schemes(false)), or_keep(Schemes(true));
  CLI::Option* to = app->add_option("--to", flags->to,
                                    "Scheme of every quantised matrix; of every "
                                    "linear weight where none is quantised")
                        ->check(schemes);
  CLI::Option* experts =
      app->add_option("--experts", flags->experts, "Scheme of the experts, or 'keep'")
          ->check(or_keep)
          ->excludes(to);
  CLI::Option* attention =
      app->add_option("--attention", flags->attention, "Scheme of attention, or 'keep'")
          ->check(or_keep)
          ->excludes(to);
  CLI::Option* rest = app->add_option("--rest", flags->rest,
                                      "Scheme of what --to would take and no other flag does")
                          ->check(or_keep)
                          ->excludes(to);
  app->add_option("--recipe", flags->recipe_file, "A file of rules (docs/recipes.md)")
      ->excludes(to)
      ->excludes(experts)
      ->excludes(attention)
      ->excludes(rest);
  app->add_option("--dialect", flags->dialect, "Spelling of the result; the usual one if not given")
      ->check(CLI::IsMember(WrittenDialects()));
  app->add_option("--scale-rule", flags->scale_rule, "How block scales are chosen")
      ->check(CLI::IsMember(NamesOf(AllScaleRule())));
  app->add_option("--scale-format", flags->scale_format, "Of fp8-block's scales")
      ->check(CLI::IsMember(std::vector<std::string>{"f32", "bf16", "e8m0"}));
  app->add_option("--group-size", flags->group_size, "Of int4-group: 32 or 128")
      ->check(CLI::IsMember(std::vector<uint64_t>{32, 128}));
}

Result<Recipe> MakeRecipe(const RecipeFlags& flags) {
  Recipe recipe;
  if (!flags.recipe_file.empty()) {
    BLOCKSCALE_ASSIGN_OR_RETURN(const std::string text,
                                ReadTextFile(PosixFileSystem(), flags.recipe_file, 1 << 20));
    BLOCKSCALE_ASSIGN_OR_RETURN(recipe, ParseRecipe(text, flags.recipe_file));
  }
  if (!flags.experts.empty())
    recipe.rules.push_back({.tensor_class = "experts", .scheme = flags.experts});
  if (!flags.attention.empty())
    recipe.rules.push_back({.tensor_class = "attention", .scheme = flags.attention});
  if (!flags.rest.empty()) recipe.rules.push_back({.scheme = flags.rest});
  if (!flags.to.empty()) recipe.rules.push_back({.scheme = flags.to});
  if (recipe.rules.empty())
    return InvalidInput(
        "convert needs to know what to make: --to SCHEME, --experts, --attention, "
        "--rest or --recipe FILE");
  if (!flags.dialect.empty()) recipe.dialect = flags.dialect;
  BLOCKSCALE_RETURN_IF_ERROR(SpreadOptions(flags, recipe));
  BLOCKSCALE_RETURN_IF_ERROR(CheckRecipe(recipe));
  return recipe;
}

}  // namespace blockscale::cli
