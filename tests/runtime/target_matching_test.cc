#include "runtime/target_matching.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace blockscale {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Config {
  explicit Config(std::vector<std::string> targets, std::vector<std::string> ignore = {}) {
    config.groups = {{.name = "group_0", .targets = std::move(targets)}};
    config.ignore = std::move(ignore);
  }
  TargetMatcher Matcher() const {
    auto matcher = TargetMatcher::Make(config);
    EXPECT_TRUE(matcher.ok()) << matcher.status().message();
    return std::move(*matcher);
  }
  CompressedTensorsConfig config;
};

TEST(NamePattern, NamesAreExactAndExpressionsAnchoredAtTheStartOnly) {
  const auto matches = [](const std::string& pattern, const std::string& name) {
    return NamePattern::Parse(pattern)->MatchesName(name);
  };
  EXPECT_TRUE(matches("lm_head", "lm_head"));
  EXPECT_FALSE(matches("lm_head", "lm_head2"));
  EXPECT_FALSE(matches("head", "lm_head"));
  EXPECT_TRUE(matches("re:lm", "lm_head"));
  EXPECT_FALSE(matches("re:head", "lm_head"));
  EXPECT_TRUE(matches("re:.*head", "lm_head.more"));
  EXPECT_FALSE(matches("re:.*head$", "lm_head.more"));
  EXPECT_TRUE(matches("re:.*\\.gate$", "model.layers.0.mlp.gate"));
  EXPECT_FALSE(matches("re:.*\\.gate$", "model.layers.0.mlp.gate_proj"));
  EXPECT_TRUE(matches("re:.*gate.*", "model.layers.0.mlp.gate_proj"));
}

TEST(NamePattern, ClassesMatchAsPartsWhateverTheCase) {
  const auto linear = NamePattern::Parse("Linear");
  for (const char* yes : {"QKVParallelLinear", "RowParallelLinear", "ReplicatedLinear", "linear"})
    EXPECT_TRUE(linear->MatchesClass(yes)) << yes;
  for (const char* no : {"ParallelLMHead", "VocabParallelEmbedding", "RoutedExperts"})
    EXPECT_FALSE(linear->MatchesClass(no)) << no;
}

TEST(NamePattern, SaysWhatItCannotJudge) {
  const auto pattern = NamePattern::Parse("re:(?P<x>a)");
  ASSERT_FALSE(pattern.ok());
  EXPECT_THAT(pattern.status().message(), HasSubstr("cannot be judged"));
}

TEST(TargetMatcher, LinearReachesExpertsOnlyByThatWord) {
  for (const auto& [targets, quantised] : std::vector<std::pair<std::vector<std::string>, bool>>{
           {{"Linear"}, true},
           {{"RoutedExperts"}, true},
           {{"re:.*block_sparse_moe.experts.*w[123]$"}, false},
           {{"re:.*(gate|up|down)_proj$"}, true},
           {{"linear"}, false}}) {
    const Config config(targets);
    TargetMatcher matcher = config.Matcher();
    const MatchOutcome outcome =
        matcher.MatchExperts("model.layers.0.mlp.experts", "RoutedExperts");
    EXPECT_EQ(outcome.group != nullptr, quantised) << targets[0];
    EXPECT_EQ(outcome.conflict, "");
  }
}

TEST(TargetMatcher, IgnoringAnythingLikeGateBreaksExperts) {
  const Config config({"Linear"}, {"re:.*gate.*"});
  TargetMatcher matcher = config.Matcher();
  const MatchOutcome outcome = matcher.MatchExperts("model.layers.0.mlp.experts", "RoutedExperts");
  EXPECT_THAT(outcome.conflict, HasSubstr("all parts need the same scheme"));
  const Config right({"Linear"}, {"re:.*\\.gate$"});
  TargetMatcher right_matcher = right.Matcher();
  EXPECT_EQ(right_matcher.MatchExperts("model.layers.0.mlp.experts", "RoutedExperts").conflict, "");
}

TEST(TargetMatcher, FusedModulesAgreeOrConflict) {
  const ModuleToMatch qkv{"l.qkv_proj", "QKVParallelLinear", {"l.q_proj", "l.k_proj", "l.v_proj"}};
  const auto outcome = [&](std::vector<std::string> ignore) {
    const Config config({"Linear"}, std::move(ignore));
    TargetMatcher matcher = config.Matcher();
    MatchOutcome result = matcher.MatchLinear(qkv);
    result.ignored |= result.group == nullptr;
    result.group = nullptr;  // it points into `config`
    return result;
  };
  EXPECT_FALSE(outcome({}).ignored);
  EXPECT_TRUE(outcome({"l.q_proj", "l.k_proj", "l.v_proj"}).ignored);
  EXPECT_TRUE(outcome({"l.qkv_proj"}).ignored);
  EXPECT_EQ(outcome({"l.qkv_proj"}).conflict, "");
  EXPECT_THAT(outcome({"l.k_proj"}).conflict,
              HasSubstr("'l.q_proj' is quantised and 'l.k_proj' is ignored"));
  EXPECT_EQ(outcome({"re:l\\.(q|k|v)_proj"}).conflict, "");
  EXPECT_TRUE(outcome({"re:l\\.(q|k|v)_proj"}).ignored);
  // An expression is never tried on the fused name.
  EXPECT_FALSE(outcome({"re:.*qkv_proj"}).ignored);
}

TEST(TargetMatcher, TargetsAreTriedOnNameThenClassThenParts) {
  const ModuleToMatch qkv{"l.qkv_proj", "QKVParallelLinear", {"l.q_proj", "l.k_proj", "l.v_proj"}};
  for (const auto& [targets, quantised] : std::vector<std::pair<std::vector<std::string>, bool>>{
           {{"l.qkv_proj"}, true},
           {{"re:.*qkv_proj$"}, true},
           {{"QKVParallelLinear"}, true},
           {{"parallellinear"}, true},
           {{"re:.*Linear$"}, true},
           {{"l.q_proj", "l.k_proj", "l.v_proj"}, true},
           {{"re:.*[qkv]_proj$"}, true},
           {{"l.q_proj", "l.k_proj"}, false},  // silently unquantised: no conflict
           {{"l.q_proj"}, false},
           {{"RowParallelLinear"}, false}}) {
    const Config config(targets);
    TargetMatcher matcher = config.Matcher();
    const MatchOutcome outcome = matcher.MatchLinear(qkv);
    EXPECT_EQ(outcome.group != nullptr, quantised) << targets[0];
    EXPECT_EQ(outcome.conflict, "");
  }
}

TEST(TargetMatcher, NamesWinOverClassesAndLaterGroupsOverEarlier) {
  Config config({"Linear"});
  config.config.groups.push_back({.name = "group_1", .targets = {"l.o_proj"}});
  TargetMatcher matcher = config.Matcher();
  EXPECT_EQ(matcher.MatchLinear({"l.o_proj", "RowParallelLinear", {}}).group->name, "group_1");
  EXPECT_EQ(matcher.MatchLinear({"l.x_proj", "RowParallelLinear", {}}).group->name, "group_0");
  config.config.groups.push_back({.name = "group_2", .targets = {"Linear"}});
  TargetMatcher again = config.Matcher();
  EXPECT_EQ(again.MatchLinear({"l.x_proj", "RowParallelLinear", {}}).group->name, "group_2");
  EXPECT_EQ(again.MatchExperts("l.experts", "RoutedExperts").group->name, "group_2");
}

TEST(TargetMatcher, ExpertsOfTwoGroupsWithOneSchemeAgree) {
  Config config({"re:.*gate_proj", "re:.*up_proj"});
  config.config.groups[0].weights = QuantizationArgs{.strategy = "channel"};
  config.config.groups.push_back(config.config.groups[0]);
  config.config.groups[1].targets = {"re:.*down_proj"};
  EXPECT_EQ(config.Matcher().MatchExperts("l.experts", "RoutedExperts").conflict, "");
  config.config.groups[1].weights->num_bits = 4;
  EXPECT_THAT(config.Matcher().MatchExperts("l.experts", "RoutedExperts").conflict,
              HasSubstr("quantised by group_0"));
}

TEST(TargetMatcher, TheClassOfExpertsIsTheRuntimes) {
  const Config config({"RoutedExperts"});
  EXPECT_NE(config.Matcher().MatchExperts("l.experts", "RoutedExperts").group, nullptr);
  EXPECT_EQ(config.Matcher().MatchExperts("l.experts", "FusedMoE").group, nullptr);
  const Config linear({"Linear"});
  EXPECT_NE(linear.Matcher().MatchExperts("l.experts", "FusedMoE").group, nullptr);
}

TEST(TargetMatcher, CountsWhichIgnoresWereUsed) {
  const Config config({"Linear"}, {"lm_head", "re:.*gate$", "nobody"});
  TargetMatcher matcher = config.Matcher();
  EXPECT_THAT(matcher.UnusedIgnores(), ElementsAre("lm_head", "re:.*gate$", "nobody"));
  EXPECT_TRUE(matcher.MatchLinear({"lm_head", "ParallelLMHead", {}}).ignored);
  matcher.NoteUnquantised("model.layers.0.mlp.gate");
  EXPECT_THAT(matcher.UnusedIgnores(), ElementsAre("nobody"));
}

TEST(TargetMatcher, LmHeadIsNoLinear) {
  const Config config({"Linear"});
  TargetMatcher matcher = config.Matcher();
  EXPECT_EQ(matcher.MatchLinear({"lm_head", "ParallelLMHead", {}}).group, nullptr);
  const Config named({"lm_head"});
  TargetMatcher named_matcher = named.Matcher();
  EXPECT_NE(named_matcher.MatchLinear({"lm_head", "ParallelLMHead", {}}).group, nullptr);
}

}  // namespace
}  // namespace blockscale
