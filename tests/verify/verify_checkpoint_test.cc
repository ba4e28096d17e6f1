// The verifier is tested by mutation: a right result must pass, and everything that can be wrong
// with one must be found and named. The right result is made here, by an oracle of the test's own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "verify/verify_fixture.h"

namespace blockscale {
namespace {

using ::testing::HasSubstr;
using namespace testing;  // NOLINT
TEST_F(VerifyTest, TheRightResultPassesWithTheRightNumbers) {
  const VerifyReport report = Verify();
  for (const VerifyFailure& failure : report.failures)
    ADD_FAILURE() << failure.object << ": " << failure.message;
  ASSERT_EQ(report.matrices.size(), 1u);
  EXPECT_EQ(report.kept_checked, 3u);
  EXPECT_EQ(report.matrices_total, 1u);
  // Once more in double, over the whole matrix.
  const Converted converted = Convert();
  const std::string codes = Codes();
  double squares = 0, errors = 0, worst = 0;
  for (size_t i = 0; i < codes.size(); ++i) {
    const size_t row = i / kColumns, column = i % kColumns;
    const double value =
        Value(static_cast<uint8_t>(codes[i])) * kScales[row / 128 * 2 + column / 128];
    const double error = value - static_cast<int8_t>(converted.codes[i]) *
                                     static_cast<double>(converted.scales[row]);
    squares += value * value;
    errors += error * error;
    worst = std::max(worst, std::fabs(error) / (converted.scales[row] / 2.0));
  }
  EXPECT_NEAR(report.matrices[0].relative_rmse, std::sqrt(errors / squares), 1e-9);
  EXPECT_NEAR(report.matrices[0].max_half_steps, worst, 1e-5);
}

TEST_F(VerifyTest, OneCodeOffByOne) {
  EXPECT_THAT(FailuresOf([](Converted& c) {
                c.codes[77 * kColumns + 3] = static_cast<char>(c.codes[77 * kColumns + 3] ^ 1);
              }),
              HasSubstr(kName + ".weight: 1 elements differ from the source by more than half a "
                                "step (the first: row 77, column 3: "));
}

TEST_F(VerifyTest, LastElementOfTheLastEdgeBlock) {
  EXPECT_THAT(
      FailuresOf([](Converted& c) { c.codes.back() = static_cast<char>(c.codes.back() + 1); }),
      HasSubstr("row 129"));
}

TEST_F(VerifyTest, OneScaleOnePercentOff) {
  EXPECT_THAT(FailuresOf([](Converted& c) { c.scales[5] *= 1.01f; }), HasSubstr("row 5"));
}

TEST_F(VerifyTest, ScalesOfNeighboursSwapped) {
  EXPECT_THAT(FailuresOf([](Converted& c) { std::swap(c.scales[127], c.scales[128]); }),
              ::testing::AllOf(HasSubstr("elements differ"), HasSubstr("row 127, column")));
}

TEST_F(VerifyTest, ScalesTimes127) {
  EXPECT_THAT(
      FailuresOf([](Converted& c) {
        for (float& s : c.scales) s *= 127;
      }),
      HasSubstr("elements differ from the source by more than half a step (the first: row 0,"));
}

TEST_F(VerifyTest, SignsLost) {
  EXPECT_THAT(FailuresOf([](Converted& c) {
                for (char& q : c.codes) q = static_cast<char>(std::abs(static_cast<int8_t>(q)));
              }),
              HasSubstr("elements differ"));
}

TEST_F(VerifyTest, EverythingZero) {
  EXPECT_THAT(
      FailuresOf([](Converted& c) { std::fill(c.codes.begin(), c.codes.end(), '\0'); }),
      HasSubstr("elements differ from the source by more than half a step (the first: row 0,"));
}

TEST_F(VerifyTest, RowsShiftedByOne) {
  EXPECT_THAT(FailuresOf([](Converted& c) {
                std::rotate(c.codes.begin(), c.codes.begin() + kColumns, c.codes.end());
              }),
              HasSubstr("elements differ"));
}

TEST_F(VerifyTest, TheLastBlockOfColumnsDropped) {
  EXPECT_THAT(FailuresOf([](Converted& c) {
                for (size_t row = 0; row < kRows; ++row)
                  for (size_t column = 128; column < kColumns; ++column)
                    c.codes[row * kColumns + column] = 0;
              }),
              HasSubstr("elements differ"));
}

TEST_F(VerifyTest, AWayThroughBf16) {
  Shards shards = good_;
  Set(shards, Convert({.round_value = [](float value) {
        uint32_t bits = 0;
        std::memcpy(&bits, &value, 4);
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000;
        std::memcpy(&value, &bits, 4);
        return value;
      }}));
  Write(shards);
  EXPECT_THAT(Failures(), HasSubstr("elements differ from the source by more than half a step"));
}

TEST_F(VerifyTest, ScalesThatAreNoScales) {
  for (const float bad : {0.0f, -1.0f, static_cast<float>(NAN), static_cast<float>(INFINITY)})
    EXPECT_THAT(FailuresOf([&](Converted& c) { c.scales[9] = bad; }), HasSubstr("row 9 has"));
}

TEST_F(VerifyTest, NanInTheSource) {
  std::string codes = Codes();
  codes[3 * kColumns + 7] = '\x7F';
  codes[4 * kColumns] = '\xFF';
  WriteSource({{kName + ".weight_scale_inv", "F32", {2, 2}, FloatBytes(kScales)}}, codes);
  EXPECT_THAT(Failures(), HasSubstr("2 elements of the source are not finite (the first: row 3, "
                                    "column 7: code 0x7f times the scale"));
}

TEST_F(VerifyTest, TensorsMissingExtraMisshapenOrChanged) {
  const auto failures = [&](const std::function<void(Shards&)>& change) {
    Shards shards = good_;
    change(shards);
    Write(shards);
    return Failures();
  };
  EXPECT_THAT(failures([&](Shards& s) { Tensor(s, "lm_head.weight").bytes[3] ^= 1; }),
              HasSubstr("lm_head.weight: differs"));
  EXPECT_THAT(failures([&](Shards& s) { Tensor(s, "model.norm.weight").dtype = "F16"; }),
              HasSubstr("was BF16 [4] and is F16 [4]"));
  EXPECT_THAT(
      failures([&](Shards& s) { Tensor(s, "model.norm.weight").name = "model.norm2.weight"; }),
      ::testing::AllOf(HasSubstr("model.norm.weight: is missing"),
                       HasSubstr("model.norm2.weight: does not belong")));
  EXPECT_THAT(failures([&](Shards& s) { Tensor(s, kName + ".weight_scale").shape = {kRows}; }),
              HasSubstr("where F32 [130, 1] was expected"));
  EXPECT_THAT(failures([&](Shards& s) { Tensor(s, kName + ".weight").dtype = "U8"; }),
              HasSubstr("is U8 [130, 200] where I8"));
  EXPECT_THAT(
      failures([&](Shards& s) { Tensor(s, kName + ".weight_scale").name = kName + ".scale"; }),
      HasSubstr("has no weight_scale"));
  EXPECT_THAT(failures([&](Shards& s) { Tensor(s, kName + ".weight").name = "x.weight"; }),
              HasSubstr("is missing in the converted"));
  EXPECT_THAT(failures([&](Shards& s) {
                s["m.safetensors"].push_back(
                    {kName + ".weight_scale_inv", "F32", {2, 2}, FloatBytes(kScales)});
              }),
              HasSubstr("weight_scale_inv: does not belong"));
}

TEST_F(VerifyTest, IndexAndShards) {
  const std::string index = folder_ / "out/model.safetensors.index.json";
  const std::string text = ReadFile(index);
  WriteFile(index, std::string(text).replace(text.find("total_size\": ") + 13, 1, "9"));
  EXPECT_THAT(Failures(), HasSubstr("total_size is 9"));
  WriteFile(index, text);
  WriteFile(folder_ / "out/stray.safetensors", TensorFile({}));
  EXPECT_THAT(Failures(), HasSubstr("stray.safetensors: lies in the folder"));
  std::filesystem::remove(folder_ / "out/stray.safetensors");
  // A tensor in an indexed shard that the index does not name: vLLM would load it.
  Shards stray = good_;
  stray["m.safetensors"].push_back({"stray.weight", "U8", {1}, "x"});
  WriteShards(folder_ / "out", stray, Int8Config());
  WriteFile(index, text);
  EXPECT_THAT(Failures(),
              HasSubstr("holds tensor 'stray.weight', which the index does not place there"));
  WriteFile(folder_ / "out/m.safetensors", TensorFile(good_["m.safetensors"]));
  EXPECT_THAT(Failures(), HasSubstr("does not say format 'pt'"));
}

TEST_F(VerifyTest, SideFiles) {
  WriteFile(folder_ / "out/tokenizer.json", "{ }");
  EXPECT_THAT(Failures(), HasSubstr("tokenizer.json: differs"));
  std::filesystem::remove(folder_ / "out/tokenizer.json");
  EXPECT_THAT(Failures(), HasSubstr("tokenizer.json: is missing"));
}

TEST_F(VerifyTest, Config) {
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string config = Int8Config();
    config.replace(config.find(from), from.size(), to);
    Write(good_, config);
    return Failures();
  };
  EXPECT_THAT(with("[\"Linear\"]", "[\"re:.*w[123]$\"]"), HasSubstr("targets is"));
  EXPECT_THAT(with("int-quantized", "float-quantized"), HasSubstr("format is"));
  EXPECT_THAT(with("\"compressed\"", "\"frozen\""), HasSubstr("quantization_status is"));
  EXPECT_THAT(with("\"num_bits\": 8", "\"num_bits\": 4"), HasSubstr("num_bits is 4"));
  EXPECT_THAT(with("\"dynamic\": true", "\"dynamic\": false"), HasSubstr("dynamic is false"));
  EXPECT_THAT(with("\"hidden_size\": 256", "\"hidden_size\": 257"),
              HasSubstr("field 'hidden_size'"));
  EXPECT_THAT(with("\"rms_norm_eps\": 1e-06,", ""), HasSubstr("field 'rms_norm_eps'"));
  EXPECT_THAT(with("\"model_type\": \"minimax_m2\",\n  \"hidden_size\": 256,",
                   "\"hidden_size\": 256,\n  \"model_type\": \"minimax_m2\","),
              HasSubstr("order of the fields"));
  Write(good_, Int8Config("[]"));
  EXPECT_THAT(Failures(),
              HasSubstr("does not fit 2 modules (the first: lm_head is BF16 and not ignored)"));
  Write(good_, Int8Config(R"(["lm_head", "re:.*"])"));
  EXPECT_THAT(Failures(), HasSubstr("o_proj is I8 and ignored"));
  Write(good_, Int8Config("\"lm_head\""));
  EXPECT_THAT(Failures(), HasSubstr("no ignore list"));
}

TEST_F(VerifyTest, WhatCannotRunIsAnErrorNotAFailure) {
  EXPECT_FALSE(VerifyCheckpoint({.source = folder_ / "none", .converted = folder_ / "out"}).ok());
  EXPECT_FALSE(
      VerifyCheckpoint({.source = folder_ / "source", .converted = folder_ / "none"}).ok());
  const auto itself =
      VerifyCheckpoint({.source = folder_ / "source", .converted = folder_ / "source"});
  ASSERT_FALSE(itself.ok());
  EXPECT_THAT(itself.status().message(), HasSubstr("every matrix is as it is"));
  const auto swapped =
      VerifyCheckpoint({.source = folder_ / "out", .converted = folder_ / "source"});
  ASSERT_TRUE(swapped.ok()) << swapped.status().message();
  EXPECT_FALSE(swapped->failures.empty());
}

}  // namespace
}  // namespace blockscale
