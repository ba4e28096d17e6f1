#include "model/shard_name.h"

#include <gtest/gtest.h>

namespace blockscale {
namespace {

TEST(ShardName, ReadsTheUsualForm) {
  const auto claim = ParseShardName("model-00002-of-00130.safetensors");
  ASSERT_TRUE(claim);
  EXPECT_EQ(claim->number, 2u);
  EXPECT_EQ(claim->count, 130u);
  EXPECT_EQ(ParseShardName("parts/model.fp8-7-of-9.safetensors")->number, 7u);
}

TEST(ShardName, ClaimsNothingInAnyOtherForm) {
  for (const char* name :
       {"", "model.safetensors", "-of-00002.safetensors", "model-of-2.safetensors",
        "model-part-of-whole.safetensors", "model-1x-of-2.safetensors", "model-1-of-.safetensors",
        "model--of-2.safetensors", "model-1-of-2.bin", "model-1-of-2x.safetensors",
        "model-1-of-99999999999999999999.safetensors", "model-+1-of-2.safetensors",
        "model-00001-of-00002"})
    EXPECT_FALSE(ParseShardName(name)) << name;
}

}  // namespace
}  // namespace blockscale
