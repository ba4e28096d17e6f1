#include "convert/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace blockscale {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const std::string& json) {
  const auto recipe = ParseRecipe(json, "r.json");
  EXPECT_FALSE(recipe.ok()) << json;
  return recipe.ok() ? "" : recipe.status().message();
}

std::string Rule(const std::string& fields) {
  return R"({"format": "blockscale-recipe", "version": 1, "rules": [{)" + fields + "}]}";
}

TEST(Recipe, WhatIsWrittenIsRead) {
  const Recipe recipe{.rules = {{.tensor_class = "experts",
                                 .scheme = "int4-group",
                                 .scale_rule = "mse",
                                 .group_size = 32},
                                {.match = "o_proj$", .scheme = "keep"},
                                {.scheme = "fp8-block", .scale_format = "e8m0"}},
                      .dialect = "compressed-tensors"};
  const auto read = ParseRecipe(RecipeJson(recipe), "r.json");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(RecipeJson(*read), RecipeJson(recipe));
}

TEST(Recipe, EachMistakeIsNamed) {
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(ErrorOf(R"({"rules": []})"), HasSubstr("no rules"));
  EXPECT_THAT(ErrorOf(R"({"rules": 1})"), HasSubstr("no array"));
  EXPECT_THAT(ErrorOf(R"({"version": 2, "rules": []})"), HasSubstr("version 1 is known"));
  EXPECT_THAT(ErrorOf(R"({"extra": 2})"), HasSubstr("extra is no key of a recipe"));
  EXPECT_THAT(ErrorOf(Rule(R"("scheme": "fp6")")), HasSubstr("scheme 'fp6' is unknown"));
  EXPECT_THAT(ErrorOf(Rule(R"("scheme": "mxfp4", "schema": 1)")), HasSubstr("schema is no key"));
  EXPECT_THAT(ErrorOf(Rule(R"("scheme": "mxfp4", "class": "expert")")),
              HasSubstr("class 'expert' is unknown; there are experts"));
  EXPECT_THAT(ErrorOf(Rule(R"("scheme": "mxfp4", "match": "(")")),
              HasSubstr("not a regular expression"));
  EXPECT_THAT(ErrorOf(Rule(R"("scheme": "mxfp4", "scale_rule": "sweep")")),
              HasSubstr("does not fit mxfp4, which has floor, ceil, even, mse"));
  EXPECT_THAT(ErrorOf(Rule(R"("scheme": "mxfp4", "group_size": 32)")), HasSubstr("int4-group has"));
  EXPECT_THAT(ErrorOf(Rule(R"("scheme": "int4-group", "group_size": 64)")), HasSubstr("32 or 128"));
  EXPECT_THAT(ErrorOf(Rule(R"("scheme": "int4-group", "group_size": "32")")),
              HasSubstr("not a whole number"));
  EXPECT_THAT(ErrorOf(Rule(R"("scheme": "mxfp4", "scale_format": "f32")")),
              HasSubstr("fp8-block has f32, bf16 or"));
  EXPECT_THAT(
      ErrorOf(Rule(R"("scheme": "fp8-block", "scale_format": "e8m0", "scale_rule": "absmax")")),
      HasSubstr("use scale rule ceil"));
  EXPECT_THAT(ErrorOf(Rule(R"("scheme": "keep", "scale_rule": "ceil")")),
              HasSubstr("keeps has no other options"));
  EXPECT_THAT(ErrorOf(R"({"dialect": "deepseek-v4", "rules": [{"scheme": "bf16"}]})"),
              HasSubstr("is only read, never written"));
  EXPECT_THAT(ErrorOf(R"({"dialect": "x", "rules": [{"scheme": "bf16"}]})"),
              HasSubstr("is unknown"));
}

StoredMatrix Matrix(const std::string& module, Scheme scheme) {
  return {.module = module, .spec = SpecOf(scheme)};
}

TEST(Recipe, TheFirstRuleThatFitsDecides) {
  const auto book = RecipeBook::Make({.rules = {{.match = "layers[.]0[.]", .scheme = "keep"},
                                                {.tensor_class = "experts", .scheme = "mxfp4"},
                                                {.scheme = "fp8-channel"}}});
  ASSERT_TRUE(book.ok());
  const auto decide = [&](const std::string& module, TensorClass of, Scheme now) {
    const auto target = book->Decide(Matrix(module, now), of, true);
    return target ? std::string(NameOf(target->spec.scheme)) : "keep";
  };
  EXPECT_EQ(decide("layers.0.experts.1.w1", TensorClass::kExperts, Scheme::kFp8Block), "keep");
  EXPECT_EQ(decide("layers.1.experts.1.w1", TensorClass::kExperts, Scheme::kBF16), "mxfp4");
  EXPECT_EQ(decide("layers.1.attn.q", TensorClass::kAttention, Scheme::kFp8Block), "fp8-channel");
  EXPECT_EQ(decide("layers.1.attn.q", TensorClass::kAttention, Scheme::kBF16), "keep");
}

// A rule for everything takes what is quantised; where nothing is, the linear weights that usually
// are.
TEST(Recipe, ARuleForEverythingLeavesSensitiveWeightsAlone) {
  const auto book = RecipeBook::Make(RecipeFor("mxfp8"));
  ASSERT_TRUE(book.ok());
  const auto taken = [&](TensorClass of, Scheme now, bool any) {
    return book->Decide(Matrix("x", now), of, any).has_value();
  };
  EXPECT_TRUE(taken(TensorClass::kOther, Scheme::kBF16, false));
  EXPECT_FALSE(taken(TensorClass::kOther, Scheme::kBF16, true));
  EXPECT_TRUE(taken(TensorClass::kRouter, Scheme::kFp8Block, true));
  for (const TensorClass of : {TensorClass::kRouter, TensorClass::kEmbedding, TensorClass::kNorm})
    EXPECT_FALSE(taken(of, Scheme::kBF16, false)) << NameOf(of);
}

TEST(Recipe, Mxfp4HasRulesThatLoseNothing) {
  const auto rule = [](const std::string& to, const std::string& scale_rule) {
    Recipe recipe = RecipeFor(to);
    recipe.rules[0].scale_rule = scale_rule;
    return RecipeBook::Make(recipe)
        ->Decide(Matrix("x", Scheme::kMxfp4), TensorClass::kExperts, true)
        ->rule;
  };
  EXPECT_EQ(rule("nvfp4", ""), ScaleRule::kExactCast);
  EXPECT_EQ(rule("nvfp4", "sweep"), ScaleRule::kSweep);
  EXPECT_EQ(rule("fp8-block", ""), ScaleRule::kCeil);
  EXPECT_EQ(rule("fp8-block", "absmax"), ScaleRule::kAbsmax);
  EXPECT_EQ(rule("bf16", ""), ScaleRule::kAbsmax);
}

}  // namespace
}  // namespace blockscale
