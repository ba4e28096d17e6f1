#include "model/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "support/temp_folder.h"
#include "support/tensor_file.h"

namespace blockscale {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using namespace testing;  // NOLINT
using Shards = std::map<std::string, std::vector<TestTensor>>;

const std::string kQ = "model.layers.0.self_attn.q_proj";

Shards GoodShards() {
  return {{"model-00001-of-00002.safetensors",
           {{kQ + ".weight", "F8_E4M3", {4, 200}, std::string(800, '8')},
            {"model.layers.0.mlp.gate.weight", "F32", {1, 1}, FloatBytes({1})}}},
          {"model-00002-of-00002.safetensors",
           {{kQ + ".weight_scale_inv", "F32", {1, 2}, FloatBytes({1, 2})},
            {"x.weight", "F8_E4M3", {2, 2}, "8888"},
            {"x.weight_scale_inv", "F32", {}, FloatBytes({1})},
            {"model.norm.weight", "BF16", {3}, "aabbcc"}}}};
}

class InspectTest : public ::testing::Test {
 protected:
  InspectTest() { WriteCheckpoint(folder_.path(), GoodShards(), Fp8Config()); }
  Inspection Inspect(bool data = false) {
    const auto inspection = InspectCheckpoint(PosixFileSystem(), folder_.path().string(), data);
    EXPECT_TRUE(inspection.ok()) << inspection.status().message();
    return inspection.ok() ? *inspection : Inspection{};
  }
  // "kind: message" of all findings; expects some.
  std::string Findings(bool data = false) {
    std::string text;
    for (const Finding& finding : Inspect(data).findings)
      text += finding.kind + ": " + finding.message + "\n";
    EXPECT_NE(text, "");
    return text;
  }
  std::string FindingsAfter(const std::function<void(Shards&)>& change, bool data = false) {
    Shards shards = GoodShards();
    change(shards);
    WriteCheckpoint(folder_.path(), shards, Fp8Config());
    return Findings(data);
  }
  TempFolder folder_;
};

TEST_F(InspectTest, CountsByPresenceAndType) {
  for (const bool data : {false, true}) {
    const Inspection inspection = Inspect(data);
    EXPECT_TRUE(inspection.findings.empty());
    EXPECT_EQ(inspection.data_read, data);
    EXPECT_EQ(inspection.family, Family::kMiniMaxM2);
    EXPECT_EQ(inspection.fp8_matrices, 2u);
    EXPECT_EQ(inspection.total.tensors, 6u);
    EXPECT_EQ(inspection.total.bytes, 800u + 4 + 8 + 4 + 4 + 6);
    EXPECT_EQ(inspection.schemes.at("fp8-block 128x128").bytes, 808u);
    EXPECT_EQ(inspection.schemes.at("fp8-tensor").tensors, 2u);
    EXPECT_EQ(inspection.schemes.at("bf16").tensors, 1u);
    EXPECT_EQ(inspection.classes.at(TensorClass::kAttention).tensors, 2u);
    EXPECT_EQ(inspection.classes.at(TensorClass::kRouter).tensors, 1u);
    EXPECT_EQ(inspection.classes.at(TensorClass::kNorm).bytes, 6u);
    ASSERT_EQ(inspection.shards.size(), 2u);
    EXPECT_EQ(inspection.shards[0].second.bytes, 804u);
  }
}

TEST_F(InspectTest, FindsShardsThatNobodyReads) {
  WriteFile(folder_ / "consolidated.safetensors", TensorFile({}));
  WriteFile(folder_ / "original/part.safetensors", TensorFile({}));
  WriteFile(folder_ / "a/b/c/deep.safetensors", TensorFile({}));
  WriteFile(folder_ / "a/notes.txt", "x");
  const std::string findings = Findings();
  EXPECT_THAT(findings, HasSubstr("unindexed-shard: consolidated.safetensors"));
  EXPECT_THAT(findings, HasSubstr("unindexed-shard: original/part.safetensors"));
  EXPECT_THAT(findings, HasSubstr("unindexed-shard: a/b/c/deep.safetensors"));
  EXPECT_EQ(std::count(findings.begin(), findings.end(), '\n'), 3);
}

TEST_F(InspectTest, NamesFromOutsideStayOnOneLineOfPlainText) {
  WriteFile(folder_ / "bad\n\x1B[31m.safetensors", "x");
  const std::string findings = Findings();
  EXPECT_THAT(findings, HasSubstr("bad\\x0a\\x1b[31m.safetensors"));
  EXPECT_EQ(std::count(findings.begin(), findings.end(), '\n'), 1);
}

TEST_F(InspectTest, IndexedShardsInSubfoldersAreIndexed) {
  Shards shards;
  shards["parts/model-00001-of-00001.safetensors"] = GoodShards().begin()->second;
  shards["parts/model-00001-of-00001.safetensors"].push_back(GoodShards().rbegin()->second[0]);
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
    std::filesystem::remove_all(entry.path());
  WriteCheckpoint(folder_.path(), shards, Fp8Config());
  EXPECT_TRUE(Inspect().findings.empty());
}

TEST_F(InspectTest, WithoutAnIndexOrAConfigItSaysWhatItCan) {
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
    std::filesystem::remove_all(entry.path());
  EXPECT_FALSE(InspectCheckpoint(PosixFileSystem(), folder_.path().string(), false).ok());
  WriteFile(folder_ / "config.json", "{}");
  EXPECT_FALSE(InspectCheckpoint(PosixFileSystem(), folder_.path().string(), false).ok());
  WriteFile(folder_ / "model.safetensors", TensorFile({{"w", "F32", {1}, FloatBytes({1})}}));
  const Inspection inspection = Inspect();
  EXPECT_TRUE(inspection.findings.empty());  // no index: no total_size to be wrong
  EXPECT_EQ(inspection.family, std::nullopt);
  EXPECT_EQ(inspection.schemes.at("f32").bytes, 4u);
  EXPECT_EQ(inspection.classes.at(TensorClass::kOther).tensors, 1u);
}

TEST_F(InspectTest, FindsWhatIndexAndShardsDisagreeAbout) {
  Shards shards = GoodShards();
  shards.begin()->second.push_back({"extra.weight", "U8", {1}, "x"});
  shards.begin()->second.push_back({"x.weight", "F8_E4M3", {2, 2}, "8888"});
  WriteFile(folder_ / "model-00001-of-00002.safetensors", TensorFile(shards.begin()->second));
  std::string findings = Findings();
  EXPECT_THAT(
      findings,
      HasSubstr("unindexed-tensor: model-00001-of-00002.safetensors: holds 'extra.weight'"));
  EXPECT_THAT(findings, HasSubstr("holds 'x.weight' too, which the index places in model-00002"));
  WriteFile(folder_ / "model-00001-of-00002.safetensors", TensorFile({}));
  EXPECT_THAT(Findings(), HasSubstr("missing-tensor"));
  std::filesystem::remove(folder_ / "model-00001-of-00002.safetensors");
  findings = Findings();
  EXPECT_THAT(findings, HasSubstr("unreadable-shard"));
  EXPECT_THAT(findings, Not(HasSubstr("shard-count")));  // the index does name two
}

TEST_F(InspectTest, FindsAWrongTotalSizeAndLyingNames) {
  const std::string path = folder_ / "model.safetensors.index.json";
  std::string index = ReadFile(path);
  index.replace(index.find("total_size\": ") + 13, 3, "480");
  WriteFile(path, index);
  EXPECT_THAT(
      Findings(),
      HasSubstr(
          "total-size: model.safetensors.index.json: total_size is 480, the tensors have 826"));
  Shards renamed;
  renamed["model-00000-of-00130.safetensors"] = GoodShards().begin()->second;
  renamed["model-00001-of-00130.safetensors"] = GoodShards().rbegin()->second;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
    std::filesystem::remove(entry.path());
  WriteCheckpoint(folder_.path(), renamed, Fp8Config());
  const std::string findings = Findings();
  EXPECT_THAT(findings, HasSubstr("says 130 shards, the index names 2"));
  EXPECT_THAT(findings, HasSubstr("numbered from 0"));
}

TEST_F(InspectTest, NamesThatClaimNothingDoNotLie) {
  Shards renamed;
  renamed["-of-00009.safetensors"] = GoodShards().begin()->second;
  renamed["model-part-of-whole.safetensors"] = GoodShards().rbegin()->second;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
    std::filesystem::remove(entry.path());
  WriteCheckpoint(folder_.path(), renamed, Fp8Config());
  EXPECT_TRUE(Inspect().findings.empty());
}

TEST_F(InspectTest, FindsScalesThatDoNotFit) {
  const auto erase = [](Shards& shards, const std::string& name) {
    for (auto& [shard, tensors] : shards)
      std::erase_if(tensors, [&](const TestTensor& t) { return t.name == name; });
  };
  EXPECT_THAT(FindingsAfter([&](Shards& s) { erase(s, kQ + ".weight_scale_inv"); }),
              HasSubstr("scale: "));
  EXPECT_THAT(Inspect().schemes, ::testing::Contains(::testing::Key("fp8 without usable scales")));
  EXPECT_THAT(FindingsAfter([&](Shards& s) {
                s.rbegin()->second[0].shape = {2, 1};
              }),
              HasSubstr("needs [1, 2]"));
}

TEST_F(InspectTest, WithDataFindsNanCodesAndBadScales) {
  const auto with_scales = [](std::vector<float> scales) {
    return [scales](Shards& s) { s.rbegin()->second[0].bytes = FloatBytes(scales); };
  };
  EXPECT_THAT(FindingsAfter(
                  [](Shards& s) {
                    s.begin()->second[0].bytes[2 * 200 + 7] = '\x7F';
                    s.begin()->second[0].bytes[3 * 200 + 7] = '\xFF';
                  },
                  true),
              HasSubstr("nan-codes: model-00001-of-00002.safetensors: tensor '" + kQ +
                        ".weight' holds 2 NaN codes, the first at [2, 7]"));
  EXPECT_THAT(FindingsAfter(with_scales({1, NAN}), true), HasSubstr("scale [0, 1] is nan"));
  EXPECT_THAT(FindingsAfter(with_scales({-1, 1}), true), HasSubstr("scale [0, 0] is -1"));
  EXPECT_THAT(FindingsAfter(with_scales({0, 1}), true), HasSubstr("is 0 over codes that are not"));
  EXPECT_TRUE(Inspect(false).findings.empty());  // headers alone do not show it
}

TEST_F(InspectTest, WithDataLooksIntoWhatHasNoUsableScales) {
  WriteCheckpoint(folder_.path(),
                  {{"m.safetensors",
                    {{"x.weight",
                      "F8_E4M3",
                      {2, 2},
                      "88\x7F"
                      "8"}}}},
                  Fp8Config());
  EXPECT_THAT(Findings(true), HasSubstr("nan-codes: m.safetensors: tensor 'x.weight' holds 1"));
}

TEST_F(InspectTest, WithDataFindsBadScalesOfInt8) {
  const std::string config =
      R"({"quantization_config":{"quant_method":"compressed-tensors","format":"int-quantized"}})";
  const auto write = [&](std::vector<float> scales) {
    WriteCheckpoint(folder_.path(),
                    {{"m.safetensors",
                      {{"a.weight", "I8", {2, 2}, "abcd"},
                       {"a.weight_scale", "F32", {2, 1}, FloatBytes(scales)}}}},
                    config);
    for (const char* old : {"1", "2"})
      std::filesystem::remove(folder_ /
                              ("model-0000" + std::string(old) + "-of-00002.safetensors"));
  };
  write({1, 2});
  EXPECT_TRUE(Inspect(true).findings.empty());
  EXPECT_EQ(Inspect(true).int8_matrices, 1u);
  write({1, 0});
  EXPECT_THAT(Findings(true), HasSubstr("at [1, 0] is zero"));
  write({NAN, -1});
  EXPECT_THAT(Findings(true), HasSubstr("holds 2 scales"));
}

TEST_F(InspectTest, DoesNotTrustTheFormatOfCompressedTensors) {
  const auto findings = [&](const std::string& format, std::vector<TestTensor> tensors) {
    WriteCheckpoint(folder_.path(), {{"m.safetensors", tensors}},
                    R"({"quantization_config":{"quant_method":"compressed-tensors","format":")" +
                        format + "\"}}");
    std::string text;
    for (const Finding& finding : Inspect().findings)
      if (finding.kind == "config") text += finding.message + "\n";
    return text;
  };
  const std::vector<TestTensor> fp8 = {{"a.weight", "F8_E4M3", {2, 1}, "88"},
                                       {"a.weight_scale", "F32", {2, 1}, FloatBytes({1, 1})}};
  const std::vector<TestTensor> int8 = {{"a.weight", "I8", {2, 1}, "88"},
                                        {"a.weight_scale", "F32", {2, 1}, FloatBytes({1, 1})}};
  const std::vector<TestTensor> plain = {{"a.weight", "F32", {1, 1}, FloatBytes({1})}};
  EXPECT_EQ(findings("float-quantized", fp8), "");
  EXPECT_EQ(findings("int-quantized", int8), "");
  EXPECT_THAT(findings("int-quantized", fp8), HasSubstr("but there are 1 F8_E4M3 matrices"));
  EXPECT_THAT(findings("float-quantized", int8), HasSubstr("but there are 1 INT8 matrices"));
  EXPECT_THAT(findings("int-quantized", plain), HasSubstr("but no matrix has scales"));
}

TEST_F(InspectTest, FindsOneScaleWhereTheConfigHasBlocks) {
  EXPECT_THAT(FindingsAfter([](Shards& s) {
                s.rbegin()->second[1] = {"x.weight", "F8_E4M3", {1, 129}, std::string(129, '8')};
              }),
              HasSubstr("config: config.json: weight_block_size is [128, 128], but 1 matrices have "
                        "one scale, the first is 'x.weight' [1, 129]"));
}

TEST_F(InspectTest, DoesNotTrustTheConfig) {
  std::string config = Fp8Config();
  config.replace(config.find("\"fp8\""), 5, "\"awq\"");
  WriteFile(folder_ / "config.json", config);
  EXPECT_THAT(Findings(),
              HasSubstr("config: config.json: quant_method is 'awq', but there are 2 F8_E4M3"));
  WriteCheckpoint(
      folder_.path(),
      {{"m.safetensors",
        {{"a.weight", "I8", {1, 1}, "x"}, {"a.weight_scale", "F32", {1, 1}, FloatBytes({1})}}}},
      Fp8Config());
  const std::string findings = Findings();
  EXPECT_THAT(findings, HasSubstr("quant_method is 'fp8', but there is no F8_E4M3"));
  EXPECT_THAT(findings, HasSubstr("but there are INT8 matrices"));
  EXPECT_EQ(Inspect().schemes.at("int8-channel").tensors, 2u);
}

}  // namespace
}  // namespace blockscale
