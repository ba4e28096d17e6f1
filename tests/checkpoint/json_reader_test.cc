#include "checkpoint/json_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace blockscale {
namespace {

using ::testing::HasSubstr;

TEST(JsonReader, KeepsOrderAndNumbers) {
  const auto json = ParseJsonStrictly(R"({"z":1e-06,"a":5000000,"m":[true,null]})", "f");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->dump(), R"({"z":1e-06,"a":5000000,"m":[true,null]})");
}

TEST(JsonReader, AllowsOneNameInDifferentObjects) {
  EXPECT_TRUE(ParseJsonStrictly(R"({"a":{"x":1},"b":{"x":1}})", "f").ok());
}

TEST(JsonReader, RefusesWithTheFileAndTheReason) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "not JSON"},
      {"{", "not JSON"},
      {R"({"a":1,"a":2})", "'a' stands twice"},
      {R"({"o":{"k":1,"k":1}})", "'k' stands twice"},
      {std::string("{}\0x", 4), "NUL byte at offset 2"},
      {"\xEF\xBB\xBF{}", "byte order mark"},
      {"{\"a\":NaN}", "not JSON"},
      {"{\"a\":\"\xC3\x28\"}", "not JSON"},
      {std::string(100000, '['), "nested deeper than 100"},
      {"{} {}", "not JSON"}};
  for (const auto& [text, reason] : cases) {
    const auto json = ParseJsonStrictly(text, "some/file.json");
    ASSERT_FALSE(json.ok()) << text.substr(0, 40);
    EXPECT_THAT(json.status().message(), HasSubstr(reason));
    EXPECT_THAT(json.status().message(), HasSubstr("some/file.json"));
  }
}

}  // namespace
}  // namespace blockscale
