// Fields, lists of numbers and counts as text.

#include "moe/text_fields.h"

#include <gtest/gtest.h>

#include <cmath>

namespace blockscale {
namespace {

TEST(TextFields, CutsAtCommasOutsideBrackets) {
  const auto fields = SplitFields("kimi-k3,activation=swiglu(alpha=1,beta=2),ep=32:7");
  ASSERT_TRUE(fields.ok());
  ASSERT_EQ(fields->size(), 3u);
  EXPECT_EQ((*fields)[0].name, "kimi-k3");
  EXPECT_EQ((*fields)[0].value, "");
  EXPECT_EQ((*fields)[1].name, "activation");
  EXPECT_EQ((*fields)[1].value, "swiglu(alpha=1,beta=2)");
  EXPECT_EQ((*fields)[2].value, "32:7");
  EXPECT_TRUE(SplitFields("")->empty());
}

TEST(TextFields, ErrorsAreTold) {
  EXPECT_EQ(SplitFields("a=1,,b=2").status().message(),
            "'a=1,,b=2' has an empty field; write NAME=VALUE,...");
  for (const char* text : {"a=(1", "a=1)", ",", "a,"}) EXPECT_FALSE(SplitFields(text).ok()) << text;
}

TEST(TextFields, Numbers) {
  const auto floats = ParseFloats({"limit", "7:inf:-0.5:1e3"});
  ASSERT_TRUE(floats.ok());
  EXPECT_EQ(*floats, (std::vector<float>{7, INFINITY, -0.5f, 1000}));
  EXPECT_EQ(ParseFloats({"limit", "7:x"}).status().message(), "limit=7:x: 'x' is no number");
  EXPECT_FALSE(ParseFloats({"limit", ""}).ok());
  EXPECT_EQ(*ParseCount({"tokens", "12"}, 1, 12), 12u);
  EXPECT_EQ(ParseCount({"tokens", "13"}, 1, 12).status().message(),
            "tokens=13: not a whole number from 1 to 12");
  for (const char* text : {"", "-1", "1.5", "99999999999999999999", "1 "})
    EXPECT_FALSE(ParseCount({"tokens", text}, 0, 12).ok()) << text;
}

}  // namespace
}  // namespace blockscale
