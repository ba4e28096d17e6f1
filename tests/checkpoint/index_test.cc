#include "checkpoint/index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace blockscale {
namespace {

using ::testing::HasSubstr;
using WeightMap = std::vector<std::pair<std::string, std::string>>;

TEST(Index, ReadsMapAndTotalSize) {
  const auto index = ParseIndex(
      R"({"metadata":{"total_size":12,"x":{"y":[1]}},"weight_map":{"b":"m.safetensors","a":"sub/n.safetensors"}})",
      "index");
  ASSERT_TRUE(index.ok()) << index.status().message();
  EXPECT_EQ(index->weight_map, (WeightMap{{"b", "m.safetensors"}, {"a", "sub/n.safetensors"}}));
  EXPECT_EQ(index->total_size, 12u);
}

TEST(Index, TotalSizeMayBeMissingOrNoWholeNumber) {
  for (const char* metadata :
       {"{}", "null", R"({"total_size":1.5})", R"({"total_size":"9"})", "[]"}) {
    const auto index =
        ParseIndex(std::string(R"({"metadata":)") + metadata + R"(,"weight_map":{}})", "index");
    ASSERT_TRUE(index.ok()) << metadata;
    EXPECT_FALSE(index->total_size.has_value()) << metadata;
  }
}

TEST(Index, RefusesShardNamesThatLeaveTheFolder) {
  const std::pair<const char*, const char*> cases[] = {
      {"/etc/x.safetensors", "absolute"},
      {"../x.safetensors", "'..'"},
      {"a/../../x.safetensors", "'..'"},
      {"a/../x.safetensors", "'..'"},
      {"a\\\\b.safetensors", "backslash"},
      {"", "empty"},
      {"a//b.safetensors", "empty or '.'"},
      {"./a.safetensors", "empty or '.'"},
      {"a.bin", "does not end in"},
      {"a.safetensors\\u0000", "control character"},
      {"a\\nb.safetensors", "control character"}};
  for (const auto& [shard, reason] : cases) {
    const auto index =
        ParseIndex(std::string(R"({"weight_map":{"t":")") + shard + R"("}})", "some/index.json");
    ASSERT_FALSE(index.ok()) << shard;
    EXPECT_THAT(index.status().message(), HasSubstr(reason));
    EXPECT_THAT(index.status().message(), HasSubstr("some/index.json"));
    EXPECT_THAT(index.status().message(), HasSubstr("'t'"));
  }
}

TEST(Index, RefusesWhatIsNoIndex) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "not JSON"},
      {"[]", "not an object"},
      {"3", "not an object"},
      {"{}", "no object 'weight_map'"},
      {R"({"weight_map":[]})", "weight_map is an array"},
      {R"({"weight_map":null})", "weight_map is null"},
      {R"({"weight_map":{"a":1}})", "is a number, not the name of a shard"},
      {R"({"weight_map":{"a":{}}})", "is an object"},
      {R"({"weight_map":{"a":"m.safetensors","a":"m.safetensors"}})", "'a' stands twice"},
      {R"({"weight_map":{},"weight_map":{}})", "stands twice"},
      {R"({"weight_map":{}} x)", "not JSON"},
      {R"({"x":)" + std::string(5000, '[') + std::string(5000, ']') + "}", "nested deeper"}};
  for (const auto& [json, reason] : cases) {
    const auto index = ParseIndex(json, "index");
    ASSERT_FALSE(index.ok()) << json.substr(0, 60);
    EXPECT_THAT(index.status().message(), HasSubstr(reason)) << json.substr(0, 60);
  }
}

TEST(Index, WritesAsHuggingFaceDoesAndReadsItBack) {
  const std::string text = SerializeIndex(7, {{"b", "m.safetensors"}, {"a\"", "n.safetensors"}});
  EXPECT_EQ(text,
            "{\n  \"metadata\": {\n    \"total_size\": 7\n  },\n  \"weight_map\": {\n"
            "    \"a\\\"\": \"n.safetensors\",\n    \"b\": \"m.safetensors\"\n  }\n}\n");
  const auto index = ParseIndex(text, "index");
  ASSERT_TRUE(index.ok());
  EXPECT_EQ(index->weight_map, (WeightMap{{"a\"", "n.safetensors"}, {"b", "m.safetensors"}}));
  EXPECT_TRUE(ParseIndex(SerializeIndex(0, {}), "index").ok());
}

}  // namespace
}  // namespace blockscale
