#include "runtime/python_regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace blockscale {
namespace {

using ::testing::HasSubstr;

TEST(PythonRegex, MatchesAsReMatchDoes) {
  struct Row {
    const char *pattern, *text;
    bool matches;  // bool(re.match(pattern, text)) of Python 3.11
  };
  const Row rows[] = {
      {"gate", "gate_proj", true},
      {"gate", "mlp.gate", false},
      {"", "anything", true},
      {".*\\.gate$", "model.layers.0.mlp.gate", true},
      {".*\\.gate$", "model.layers.0.mlp.gate_proj", false},
      {".*\\.gate$", "modelxgate", false},
      {"model\\.layers\\.\\d+\\.self_attn", "model.layers.61.self_attn.q_proj", true},
      {"model\\.layers\\.\\d+\\.self_attn", "model.layers.x.self_attn", false},
      {"(?:a|b)c", "bc", true},
      {"(?!lm_head).*", "lm_head", false},
      {"(?!lm_head).*", "lm_heat", true},
      {"[^.]+\\.w[123]$", "7.w2", true},
      {"[^.]+\\.w[123]$", "7.w4", false},
      {"a{2,3}$", "aaa", true},
      {"a{2,3}$", "aaaa", false},
      {"a+?b", "aab", true},
      {"[a\\]]x", "]x", true},
      {"\\bgate\\b", "gate.x", true},
  };
  for (const Row& row : rows) {
    const auto regex = CompilePythonRegex(row.pattern);
    ASSERT_TRUE(regex.ok()) << regex.status().message();
    EXPECT_EQ(MatchesFromStart(*regex, row.text), row.matches) << row.pattern << " " << row.text;
  }
}

TEST(PythonRegex, RefusesWhatTheTwoLanguagesReadDifferently) {
  for (const auto& [pattern, why] : std::vector<std::pair<std::string, std::string>>{
           {"(?P<x>a)", "'(?P' is a group of Python's alone"},
           {"(?i)gate", "'(?i' is a group of Python's alone"},
           {"(?<=a)b", "'(?<' is a group"},
           {"\\Agate", "'\\A' is an escape of Python's alone"},
           {"gate\\Z", "'\\Z' is an escape"},
           {"\\p{L}", "'\\p' is an escape"},
           {"(a)\\1", "'\\1' is a back reference"},
           {"a++", "'+' after a quantifier"},
           {"a{2}+", "'+' after a quantifier"},
           {"a**", "'*' after a quantifier"},
           {"[]a]", "first in a class"},
           {"[^]a]", "first in a class"},
           {"[[:alpha:]]", "'[:' in a class"},
           {"(a", "cannot be judged here"},
           {"[a", "cannot be judged here"},
           {"a\\", "cannot be judged here"}}) {
    const auto regex = CompilePythonRegex(pattern);
    ASSERT_FALSE(regex.ok()) << pattern;
    EXPECT_THAT(regex.status().message(), HasSubstr(why));
    EXPECT_THAT(regex.status().message(), HasSubstr(pattern));
  }
  EXPECT_FALSE(CompilePythonRegex(std::string(kMaxRegexLength + 1, 'a')).ok());
  EXPECT_TRUE(CompilePythonRegex(std::string(kMaxRegexLength, 'a')).ok());
}

TEST(PythonRegex, TakesNoExponentialTime) {
  const auto regex = CompilePythonRegex("(a*)*b");
  ASSERT_TRUE(regex.ok());
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(MatchesFromStart(*regex, std::string(200, 'a')));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_FALSE(MatchesFromStart(*CompilePythonRegex(".*"), std::string(kMaxNameLength + 1, 'a')));
}

}  // namespace
}  // namespace blockscale
