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
  EXPECT_THAT(error("/format", 8), HasSubstr("format is 8"));
  EXPECT_THAT(error(group + "/weights/num_bits", 1e10), HasSubstr("num_bits is"));
  EXPECT_THAT(error(group + "/weights/num_bits", uint64_t{1} << 40), HasSubstr("below 2^31"));
  EXPECT_THAT(error(group + "/weights/group_size", 128),
              HasSubstr("forbids a positive group_size"));
  EXPECT_THAT(error(group + "/weights/group_size", 0), HasSubstr("group_size is 0"));
  EXPECT_THAT(error(group + "/weights/strategy", "group"),
              HasSubstr("needs a positive group_size"));
  EXPECT_THAT(error(group + "/weights/strategy", "block"), HasSubstr("needs block_structure"));
  EXPECT_THAT(error(group + "/weights/block_structure", {128, 128}),
              HasSubstr("forbids block_structure"));
  EXPECT_THAT(error(group + "/weights/block_structure", {128}), HasSubstr("two numbers"));
  EXPECT_THAT(error(group + "/weights/block_structure", {128, 0}), HasSubstr("positive"));
  EXPECT_THAT(error(group + "/weights/observer", 3), HasSubstr("weights.observer is 3"));
  EXPECT_THAT(error(group + "/weights/observer_kwargs", nullptr), HasSubstr("observer_kwargs"));
  EXPECT_THAT(error(group + "/input_activations/dynamic", "local"), HasSubstr("tensor_group"));
  EXPECT_THAT(error("/sparsity_config", {{"format", "dense"}}), HasSubstr("sparsity_config"));
}

TEST(CompressedTensorsConfig, FillsInWhatIsLeftOut) {
  const auto weights = [](const OrderedJson& args) {
    OrderedJson json = GoodConfig();
    json["config_groups"]["group_0"]["weights"] = args;
    const auto config = ParseCompressedTensorsConfig(json);
    EXPECT_TRUE(config.ok()) << config.status().message();
    return *config->groups[0].weights;
  };
  EXPECT_EQ(weights(OrderedJson::object()).strategy, "tensor");
  EXPECT_EQ(weights(OrderedJson::object()).num_bits, 8);
  EXPECT_EQ(weights({{"group_size", 32}}).strategy, "group");
  EXPECT_EQ(weights({{"group_size", -1}}).strategy, "channel");
  EXPECT_EQ(weights({{"group_size", nullptr}, {"strategy", nullptr}}).strategy, "tensor");
  EXPECT_EQ(weights({{"type", "FLOAT"}, {"strategy", "Channel"}}).type, "float");
  EXPECT_EQ(weights({{"strategy", "block"}, {"block_structure", {64, 128}}}).block_structure,
            (std::pair<int64_t, int64_t>(64, 128)));
  EXPECT_EQ(weights({{"observer", "minmax"}, {"observer_kwargs", OrderedJson::object()}}),
            QuantizationArgs{.strategy = "tensor"});
}

TEST(CompressedTensorsConfig, RemarksOnKeysOfLaterVersionsAndOnWhatIsNotJudged) {
  OrderedJson json = GoodConfig();
  json["config_groups"]["group_0"]["format"] = "int-quantized";
  json["config_groups"]["group_0"]["weights"]["scale_dtype"] = "torch.uint8";
  json["kv_cache_scheme"] = {{"num_bits", 8}};
  json["transform_config"] = OrderedJson::object();
  const auto config = ParseCompressedTensorsConfig(json);
  ASSERT_TRUE(config.ok()) << config.status().message();
  ASSERT_EQ(config->remarks.size(), 3u);
  EXPECT_THAT(config->remarks[0], HasSubstr("'format' is unknown to older versions"));
  EXPECT_THAT(config->remarks[1], HasSubstr("'weights.scale_dtype'"));
  EXPECT_THAT(config->remarks[2], HasSubstr("kv_cache_scheme is set"));
}

TEST(CompressedTensorsConfig, KnowsFp8AndTheFormatsWithActivations) {
  auto group = ParseCompressedTensorsConfig(GoodConfig())->groups[0];
  EXPECT_FALSE(IsDynamicFp8W8A8(group));
  group.weights->type = "float";
  EXPECT_FALSE(IsDynamicFp8W8A8(group));
  group.input_activations->type = "float";
  EXPECT_TRUE(IsDynamicFp8W8A8(group));
  group.input_activations->dynamic = "false";
  EXPECT_FALSE(IsDynamicFp8W8A8(group));
  group.input_activations.reset();
  EXPECT_FALSE(IsDynamicFp8W8A8(group));
  EXPECT_TRUE(IsActivationFormat("int-quantized"));
  EXPECT_FALSE(IsActivationFormat("pack-quantized"));
  EXPECT_FALSE(IsActivationFormat(""));
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
