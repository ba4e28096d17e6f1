#include "convert/recipe.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "checkpoint/json_reader.h"

namespace blockscale {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr char kFormat[] = "blockscale-recipe";
constexpr int kVersion = 1;
constexpr char kKeep[] = "keep";

// "f32, bf16, fp16, ...": what a message offers instead.
template <typename Values>
std::string Names(const Values& values) {
  std::string names;
  for (const auto value : values) {
    if (!names.empty()) names += ", ";
    names += NameOf(value);
  }
  return names;
}

Result<std::string> Text(const OrderedJson& value, const std::string& where) {
  if (!value.is_string()) return InvalidInput("{} is {}, not a string", where, value.dump());
  return value.get<std::string>();
}

Result<RecipeRule> ParseRule(const OrderedJson& json, const std::string& where) {
  if (!json.is_object()) return InvalidInput("{} is {}, not an object", where, json.type_name());
  RecipeRule rule;
  const std::pair<const char*, std::string*> texts[] = {{"class", &rule.tensor_class},
                                                        {"match", &rule.match},
                                                        {"scheme", &rule.scheme},
                                                        {"scale_rule", &rule.scale_rule},
                                                        {"scale_format", &rule.scale_format}};
  for (const auto& item : json.items()) {
    const std::string& key = item.key();
    const OrderedJson& value = item.value();
    const std::string here = where + "." + key;
    if (key == "group_size") {
      if (!value.is_number_unsigned())
        return InvalidInput("{} is {}, not a whole number", here, value.dump());
      rule.group_size = value.get<uint64_t>();
      continue;
    }
    const auto found = std::find_if(std::begin(texts), std::end(texts),
                                    [&](const auto& text) { return key == text.first; });
    if (found == std::end(texts))
      return InvalidInput(
          "{} is no key of a rule; class, match, scheme, scale_rule, scale_format "
          "and group_size are",
          here);
    BLOCKSCALE_ASSIGN_OR_RETURN(*found->second, Text(value, here));
  }
  return rule;
}

Result<QuantSpec> SpecOfRule(const RecipeRule& rule, Scheme scheme) {
  QuantSpec spec = SpecOf(scheme);
  if (rule.group_size != 0) {
    if (scheme != Scheme::kInt4Group || (rule.group_size != 32 && rule.group_size != 128))
      return InvalidInput("recipe: group_size {} does not fit {}; int4-group has 32 or 128",
                          rule.group_size, rule.scheme);
    spec.block_columns = rule.group_size;
  }
  if (!rule.scale_format.empty()) {
    const std::optional<Format> format = ParseFormat(rule.scale_format);
    const bool fits = format == Format::kF32 || format == Format::kBF16 || format == Format::kE8M0;
    if (scheme != Scheme::kFp8Block || !fits)
      return InvalidInput(
          "recipe: scale_format '{}' does not fit {}; fp8-block has f32, bf16 or "
          "e8m0",
          rule.scale_format, rule.scheme);
    spec.scale = *format;
  }
  return spec;
}

}  // namespace

Result<RecipeBook::Rule> RecipeBook::MakeRule(const RecipeRule& rule) {
  Rule made;
  if (!rule.tensor_class.empty()) {
    made.of = ParseTensorClass(rule.tensor_class);
    if (!made.of)
      return InvalidInput("recipe: class '{}' is unknown; there are {}", rule.tensor_class,
                          Names(AllTensorClass()));
  }
  if (!rule.match.empty()) {
    made.match = std::make_shared<const re2::RE2>(rule.match, re2::RE2::Quiet);
    if (!made.match->ok())
      return InvalidInput("recipe: match '{}' is not a regular expression: {}", rule.match,
                          made.match->error());
  }
  const bool options = !rule.scale_rule.empty() || !rule.scale_format.empty() || rule.group_size;
  if (rule.scheme == kKeep) {
    if (options) return InvalidInput("recipe: a rule that keeps has no other options");
    return made;
  }
  const std::optional<Scheme> scheme = ParseScheme(rule.scheme);
  if (!scheme)
    return InvalidInput("recipe: scheme '{}' is unknown; there are keep, {}", rule.scheme,
                        Names(AllScheme()));
  MatrixTarget target{.rule = DefaultRule(*scheme), .named = made.of || made.match};
  BLOCKSCALE_ASSIGN_OR_RETURN(target.spec, SpecOfRule(rule, *scheme));
  made.default_rule = rule.scale_rule.empty();
  if (target.spec.scale == Format::kE8M0 && made.default_rule) target.rule = ScaleRule::kCeil;
  if (!made.default_rule) {
    const std::optional<ScaleRule> scale_rule = ParseScaleRule(rule.scale_rule);
    if (!scale_rule || !RuleFits(*scale_rule, *scheme)) {
      std::vector<ScaleRule> fitting;
      for (const ScaleRule one : AllScaleRule())
        if (RuleFits(one, *scheme)) fitting.push_back(one);
      return InvalidInput("recipe: scale rule '{}' does not fit {}, which has {}", rule.scale_rule,
                          rule.scheme, Names(fitting));
    }
    target.rule = *scale_rule;
    if (target.spec.scale == Format::kE8M0 && target.rule == ScaleRule::kAbsmax)
      return InvalidInput("recipe: scales of e8m0 are powers of two; use scale rule ceil");
  }
  made.target = target;
  return made;
}

Result<RecipeBook> RecipeBook::Make(const Recipe& recipe) {
  RecipeBook book;
  if (recipe.rules.empty()) return InvalidInput("recipe: has no rules; nothing would be converted");
  if (!recipe.dialect.empty()) {
    book.dialect_ = ParseDialect(recipe.dialect);
    std::vector<Dialect> written;
    for (const Dialect dialect : AllDialect())
      if (IsWritten(dialect)) written.push_back(dialect);
    if (!book.dialect_ || !IsWritten(*book.dialect_))
      return InvalidInput("recipe: dialect '{}' {}; there are {}", recipe.dialect,
                          book.dialect_ ? "is only read, never written" : "is unknown",
                          Names(written));
  }
  for (const RecipeRule& rule : recipe.rules) {
    BLOCKSCALE_ASSIGN_OR_RETURN(Rule made, MakeRule(rule));
    book.rules_.push_back(std::move(made));
  }
  return book;
}

std::optional<MatrixTarget> RecipeBook::Decide(const StoredMatrix& matrix, TensorClass of,
                                               bool any_quantised) const {
  const bool quantised = matrix.spec.has_scales();
  const bool usual = any_quantised ? quantised
                                   : of == TensorClass::kExperts || of == TensorClass::kAttention ||
                                         of == TensorClass::kOther;
  for (const Rule& rule : rules_) {
    if (rule.of && *rule.of != of) continue;
    if (rule.match && !re2::RE2::PartialMatch(matrix.module, *rule.match)) continue;
    if (!rule.of && !rule.match && !usual) continue;
    if (!rule.target) return std::nullopt;
    MatrixTarget target = *rule.target;
    // MXFP4 has rules of its own that lose nothing.
    if (rule.default_rule && matrix.spec.scheme == Scheme::kMxfp4) {
      if (target.spec.scheme == Scheme::kNvfp4) target.rule = ScaleRule::kExactCast;
      if (RuleFits(ScaleRule::kCeil, target.spec.scheme)) target.rule = ScaleRule::kCeil;
    }
    return target;
  }
  return std::nullopt;
}

Result<Recipe> ParseRecipe(std::string_view text, const std::string& file) {
  BLOCKSCALE_ASSIGN_OR_RETURN(const OrderedJson json, ParseJsonStrictly(text, file));
  if (!json.is_object())
    return InvalidInput("{}: is {}, not a JSON object", file, json.type_name());
  Recipe recipe;
  for (const auto& [key, value] : json.items()) {
    const std::string where = fmt::format("{}: {}", file, key);
    if (key == "format" || key == "version") {
      if (value != (key == "format" ? OrderedJson(kFormat) : OrderedJson(kVersion)))
        return InvalidInput("{} is {}; {} version {} is known", where, value.dump(), kFormat,
                            kVersion);
    } else if (key == "dialect") {
      BLOCKSCALE_ASSIGN_OR_RETURN(recipe.dialect, Text(value, where));
    } else if (key == "rules") {
      if (!value.is_array()) return InvalidInput("{} is no array", where);
      for (size_t i = 0; i < value.size(); ++i) {
        BLOCKSCALE_ASSIGN_OR_RETURN(RecipeRule rule,
                                    ParseRule(value[i], fmt::format("{}[{}]", where, i)));
        recipe.rules.push_back(std::move(rule));
      }
    } else {
      return InvalidInput("{} is no key of a recipe; format, version, dialect and rules are",
                          where);
    }
  }
  if (const Status status = CheckRecipe(recipe); !status.ok())
    return InvalidInput("{}: {}", file, status.message());
  return recipe;
}

std::string RecipeJson(const Recipe& recipe) {
  OrderedJson rules = OrderedJson::array();
  for (const RecipeRule& rule : recipe.rules) {
    OrderedJson json = OrderedJson::object();
    if (!rule.tensor_class.empty()) json["class"] = rule.tensor_class;
    if (!rule.match.empty()) json["match"] = rule.match;
    json["scheme"] = rule.scheme;
    if (!rule.scale_rule.empty()) json["scale_rule"] = rule.scale_rule;
    if (!rule.scale_format.empty()) json["scale_format"] = rule.scale_format;
    if (rule.group_size != 0) json["group_size"] = rule.group_size;
    rules.push_back(std::move(json));
  }
  OrderedJson json = {{"format", kFormat}, {"version", kVersion}};
  if (!recipe.dialect.empty()) json["dialect"] = recipe.dialect;
  json["rules"] = std::move(rules);
  return json.dump();
}

Recipe RecipeFor(const std::string& scheme) { return {.rules = {{.scheme = scheme}}}; }

Status CheckRecipe(const Recipe& recipe) { return RecipeBook::Make(recipe).status(); }

}  // namespace blockscale
