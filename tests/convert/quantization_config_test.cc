#include "convert/quantization_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sample_checkpoint.h"
#include "support/temp_folder.h"

namespace blockscale {
namespace {

using ::testing::ElementsAre;

// One INT8 matrix and nothing else.
ConversionPlan Int8Plan() {
  ConversionPlan plan;
  plan.dialect = Dialect::kCompressedTensors;
  plan.quantised = {{"model.layers.0.self_attn.q_proj", SpecOf(Scheme::kInt8Channel)}};
  return plan;
}

TEST(QuantizationConfig, IgnoresWhatStaysAndNothingElse) {
  testing::TempFolder folder;
  testing::WriteSample(folder.path());
  const auto checkpoint = Checkpoint::Open(PosixFileSystem(), folder.path());
  ASSERT_TRUE(checkpoint.ok());
  const auto plan = MakeConversionPlan(*checkpoint, RecipeFor("int8-channel"));
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_THAT(IgnoreList(*plan),
              ElementsAre("lm_head", "model.layers.0.block_sparse_moe.gate", "re:.*\\.gate$"));
}

TEST(QuantizationConfig, ReplacesOneFieldAndKeepsTheRestInOrder) {
  const auto config = ParseHfConfig(testing::Fp8Config(), "config.json");
  const std::string text = RewriteConfig(*config, Int8Plan());
  const auto rewritten = nlohmann::ordered_json::parse(text);
  std::vector<std::string> keys, source_keys;
  for (const auto& [key, value] : rewritten.items()) keys.push_back(key);
  for (const auto& [key, value] : config->json.items()) {
    source_keys.push_back(key);
    if (key == "quantization_config") continue;
    EXPECT_EQ(rewritten[key], value) << key;
  }
  EXPECT_EQ(keys, source_keys);
  EXPECT_NE(text.find("\"rms_norm_eps\": 1e-06"), std::string::npos);
  EXPECT_EQ(
      rewritten["quantization_config"].dump(),
      R"({"quant_method":"compressed-tensors","format":"int-quantized",)"
      R"("quantization_status":"compressed","global_compression_ratio":null,)"
      R"("config_groups":{"group_0":{"targets":["Linear"],)"
      R"("weights":{"num_bits":8,"type":"int","symmetric":true,"strategy":"channel","dynamic":false},)"
      R"("input_activations":{"num_bits":8,"type":"int","symmetric":true,"strategy":"token","dynamic":true}}},)"
      R"("ignore":["lm_head"]})");
}

TEST(QuantizationConfig, ReplacesItWhereItStood) {
  const auto config = ParseHfConfig(
      R"({"a":1,"text_config":{"quantization_config":{"quant_method":"fp8"},"b":2},"c":3})", "f");
  const auto rewritten = nlohmann::ordered_json::parse(RewriteConfig(*config, Int8Plan()));
  EXPECT_EQ(rewritten["text_config"]["quantization_config"]["quant_method"], "compressed-tensors");
  EXPECT_FALSE(rewritten.contains("quantization_config"));
}

}  // namespace
}  // namespace blockscale
