#include "runtime/compressed_tensors_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace blockscale {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using OrderedJson = nlohmann::ordered_json;

OrderedJson GoodConfig() {
  return OrderedJson::parse(R"({
    "quant_method": "compressed-tensors", "format": "int-quantized", "quantization_status": "compressed",
    "config_groups": {"group_0": {"targets": ["Linear"],
      "weights": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel", "dynamic": false},
      "input_activations": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "token", "dynamic": true}}},
    "ignore": ["lm_head"]})");
}

TEST(CompressedTensorsConfig, ReadsTheInt8Envelope) {
  const auto config = ParseCompressedTensorsConfig(GoodConfig());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->format, "int-quantized");
  ASSERT_EQ(config->groups.size(), 1u);
  EXPECT_EQ(config->groups[0].weights->strategy, "channel");
  EXPECT_EQ(config->groups[0].input_activations->dynamic, "true");
  EXPECT_TRUE(IsDynamicTokenW8A8(config->groups[0]));
  EXPECT_THAT(config->remarks, IsEmpty());
}

TEST(CompressedTensorsConfig, RefusesWhatPydanticWould) {
  const auto error = [](const std::string& pointer, const OrderedJson& value) {
    OrderedJson json = GoodConfig();
    json[OrderedJson::json_pointer(pointer)] = value;
    const auto config = ParseCompressedTensorsConfig(json);
    EXPECT_FALSE(config.ok()) << pointer;
    return config.status().message();
  };
  const std::string group = "/config_groups/group_0";
  EXPECT_THAT(error(group + "/weights/bits", 8), HasSubstr("has the key 'bits'"));
  EXPECT_THAT(error(group + "/extra", 1), HasSubstr("config_groups.group_0 has the key 'extra'"));
  EXPECT_THAT(error(group + "/weights/type", "uint"), HasSubstr("type is \"uint\""));
  EXPECT_THAT(error(group + "/weights/num_bits", "8"), HasSubstr("num_bits is \"8\""));
  EXPECT_THAT(error(group + "/weights/symmetric", 1), HasSubstr("symmetric is 1"));
  EXPECT_THAT(error(group + "/weights/strategy", "row"), HasSubstr("strategy is 'row'"));
  EXPECT_THAT(error(group + "/weights/dynamic", "yes"), HasSubstr("dynamic is \"yes\""));
  EXPECT_THAT(error(group + "/weights", 3), HasSubstr("weights is 3"));
  EXPECT_THAT(error(group + "/input_activations/dynamic", false),
              HasSubstr("'token' must be dynamic"));
  EXPECT_THAT(error(group + "/input_activations/strategy", "channel"),
              HasSubstr("a dynamic strategy"));
  EXPECT_THAT(error(group + "/targets", "Linear"), HasSubstr("targets is \"Linear\""));
  EXPECT_THAT(error(group + "/targets", {1}), HasSubstr("holds 1"));
  EXPECT_THAT(error(group, 1), HasSubstr("config_groups.group_0 is 1"));
  EXPECT_THAT(error("/config_groups", OrderedJson::object()), HasSubstr("config_groups"));
  EXPECT_THAT(error("/ignore", "lm_head"), HasSubstr("ignore is"));
  EXPECT_THAT(error("/sparsity_config", {{"format", "dense"}}), HasSubstr("sparsity_config"));
}

TEST(CompressedTensorsConfig, RemarksOnWhatBreaksOthers) {
  OrderedJson json = GoodConfig();
  json["quantization_status"] = "frozen";
  json["config_groups"] = {{"group_1", json["config_groups"]["group_0"]}};
  const auto config = ParseCompressedTensorsConfig(json);
  ASSERT_TRUE(config.ok());
  ASSERT_EQ(config->remarks.size(), 2u);
  EXPECT_THAT(config->remarks[0], HasSubstr("without their scales"));
  EXPECT_THAT(config->remarks[1], HasSubstr("group_0"));
}

TEST(CompressedTensorsConfig, DynamicTokenW8A8DoesNotLookAtTheType) {
  auto group = ParseCompressedTensorsConfig(GoodConfig())->groups[0];
  group.weights->type = "float";
  EXPECT_TRUE(IsDynamicTokenW8A8(group));
  group.weights->strategy = "group";
  EXPECT_FALSE(IsDynamicTokenW8A8(group));
  group.weights->strategy = "tensor";
  EXPECT_TRUE(IsDynamicTokenW8A8(group));
  group.weights->num_bits = 4;
  EXPECT_FALSE(IsDynamicTokenW8A8(group));
  group.weights.reset();
  EXPECT_FALSE(IsDynamicTokenW8A8(group));
}

}  // namespace
}  // namespace blockscale
