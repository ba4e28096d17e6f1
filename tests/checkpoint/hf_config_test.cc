#include "checkpoint/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/tensor_file.h"

namespace blockscale {
namespace {

using ::testing::HasSubstr;

TEST(HfConfig, ReadsTheFieldsItNeeds) {
  const auto config = ParseHfConfig(testing::Fp8Config(), "config.json");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->model_type, "minimax_m2");
  EXPECT_EQ(config->architectures, std::vector<std::string>{"MiniMaxM2ForCausalLM"});
  EXPECT_EQ(config->Number("hidden_size"), 256u);
  EXPECT_EQ(config->Number("no_such_field"), std::nullopt);
  EXPECT_EQ(config->Number("model_type"), std::nullopt);
  ASSERT_TRUE(config->quantization.has_value());
  EXPECT_EQ(config->quantization->quant_method, "fp8");
  EXPECT_EQ(config->quantization->block_size->rows, 128u);
  EXPECT_EQ(config->quantization->block_size->columns, 128u);
}

TEST(HfConfig, FindsTheQuantisationWhereVllmDoes) {
  const auto inner = ParseHfConfig(
      R"({"text_config":{"hidden_size":8,"quantization_config":{"quant_method":"fp8"}}})", "f");
  ASSERT_TRUE(inner.ok());
  EXPECT_EQ(inner->quantization->json_path,
            (std::vector<std::string>{"text_config", "quantization_config"}));
  EXPECT_EQ(inner->quantization_json().dump(), R"({"quant_method":"fp8"})");
  EXPECT_EQ(inner->Number("hidden_size"), 8u);
  const auto top = ParseHfConfig(
      R"({"compression_config":{"quant_method":"x"},"quantization_config":{"quant_method":"y"}})",
      "f");
  EXPECT_EQ(top->quantization->quant_method, "y");
  EXPECT_FALSE(ParseHfConfig(R"({"quantization_config":null})", "f")->quantization.has_value());
}

TEST(HfConfig, RefusesFieldsThatCannotBe) {
  const auto with_block = [](const std::string& block) {
    return R"({"quantization_config":{"weight_block_size":)" + block + "}}";
  };
  const std::pair<std::string, const char*> cases[] = {
      {"[]", "not a JSON object"},
      {R"({"model_type":7})", "'model_type' is number"},
      {R"({"architectures":"x"})", "'architectures' is string"},
      {R"({"architectures":[1]})", "'architectures' holds number"},
      {R"({"quantization_config":[]})", "quantization_config is array"},
      {R"({"quantization_config":{"quant_method":1}})", "'quant_method' is number"},
      {with_block("128"), "weight_block_size is 128"},
      {with_block("[128]"), "weight_block_size"},
      {with_block("[128,128,1]"), "weight_block_size"},
      {with_block("[0,128]"), "weight_block_size"},
      {with_block("[-128,128]"), "weight_block_size"},
      {with_block("[128.0,128]"), "weight_block_size"},
      {with_block("[4294967296,128]"), "weight_block_size"},
      {with_block(R"(["128","128"])"), "weight_block_size"}};
  for (const auto& [json, reason] : cases) {
    const auto config = ParseHfConfig(json, "dir/config.json");
    ASSERT_FALSE(config.ok()) << json;
    EXPECT_THAT(config.status().message(), HasSubstr(reason)) << json;
    EXPECT_THAT(config.status().message(), HasSubstr("dir/config.json"));
  }
}

}  // namespace
}  // namespace blockscale
