// The verifier is tested by mutation: a right result must pass, and everything that can be wrong
// with one must be found and named. The right result is made here, by an oracle of the test's own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "blockscale/verify.h"
#include "support/temp_folder.h"
#include "support/tensor_file.h"

namespace blockscale {
namespace {

using ::testing::HasSubstr;
using namespace testing;  // NOLINT
using Shards = std::map<std::string, std::vector<TestTensor>>;

constexpr size_t kRows = 130, kColumns = 200;
const std::string kName = "model.layers.0.self_attn.o_proj";

// Codes that differ in every row and column; no NaN.
std::string Codes() {
  std::string codes(kRows * kColumns, '\0');
  for (size_t i = 0; i < codes.size(); ++i) {
    const size_t code = (i * 131 + i / kColumns * 7) % 254;
    codes[i] = static_cast<char>(code < 127 ? code : code + 1);
  }
  return codes;
}

const std::vector<float> kScales = {0.001f, 0.002f, 0.0035f, 0.0007f};  // a grid of 2 x 2

float Value(uint8_t code) {
  const int exponent = code >> 3 & 15;
  const float whole = static_cast<float>((exponent == 0 ? 0 : 8) + (code & 7));
  const float value = std::ldexp(whole, (exponent == 0 ? 1 : exponent) - 10);
  return code >= 128 ? -value : value;
}

struct Converted {
  std::string codes = std::string(kRows * kColumns, '\0');
  std::vector<float> scales = std::vector<float>(kRows);
};

// `round_value` stands for a path of the values: the identity, or BF16 for the contaminated one.
Converted Convert(const std::function<float(float)>& round_value = [](float v) { return v; }) {
  const std::string codes = Codes();
  Converted out;
  for (size_t row = 0; row < kRows; ++row) {
    std::vector<float> values(kColumns);
    float largest = 0;
    for (size_t column = 0; column < kColumns; ++column) {
      values[column] = round_value(Value(static_cast<uint8_t>(codes[row * kColumns + column])) *
                                   kScales[row / 128 * 2 + column / 128]);
      largest = std::max(largest, std::fabs(values[column]));
    }
    out.scales[row] = largest / 127.0f;
    for (size_t column = 0; column < kColumns; ++column)
      out.codes[row * kColumns + column] =
          static_cast<char>(static_cast<int8_t>(std::nearbyint(values[column] / out.scales[row])));
  }
  return out;
}

std::string Int8Config(const std::string& ignore = R"(["lm_head", "model.layers.0.mlp.gate"])") {
  std::string config = Fp8Config();
  const size_t begin = config.find("\"quantization_config\""), end = config.find("}", begin) + 1;
  return config.replace(begin, end - begin, R"("quantization_config": {
    "quant_method": "compressed-tensors", "format": "int-quantized", "quantization_status": "compressed",
    "config_groups": {"group_0": {"targets": ["Linear"],
      "weights": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel", "dynamic": false},
      "input_activations": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "token", "dynamic": true}}},
    "ignore": )" + ignore + "}");
}

// Writes a file with the metadata that the converter's have.
void WriteShards(const std::filesystem::path& folder, const Shards& shards,
                 const std::string& config) {
  WriteCheckpoint(folder, shards, config);
  for (const auto& [name, tensors] : shards) {
    std::string file = TensorFile(tensors);
    uint64_t length = 0;
    std::memcpy(&length, file.data(), 8);
    const std::string json = R"({"__metadata__":{"format":"pt"},)" + file.substr(9, length - 1);
    WriteFile(folder / name, RawTensorFile(json, file.substr(8 + length)));
  }
}

class VerifyTest : public ::testing::Test {
 protected:
  VerifyTest() {
    const std::vector<TestTensor> kept = {
        {"lm_head.weight", "BF16", {2, 4}, std::string(16, 'l')},
        {"model.layers.0.mlp.gate.weight", "F32", {1, 2}, std::string(8, 'g')},
        {"model.norm.weight", "BF16", {4}, std::string(8, 'n')}};
    Shards source = {{"m.safetensors", kept}};
    source["m.safetensors"].push_back({kName + ".weight", "F8_E4M3", {kRows, kColumns}, Codes()});
    source["m.safetensors"].push_back(
        {kName + ".weight_scale_inv", "F32", {2, 2}, FloatBytes(kScales)});
    WriteCheckpoint(folder_ / "source", source, Fp8Config());
    WriteFile(folder_ / "source/tokenizer.json", "{}");
    good_ = {{"m.safetensors", kept}};
    Set(good_, Convert());
    Write(good_);
  }

  static void Set(Shards& shards, const Converted& converted) {
    std::erase_if(shards["m.safetensors"],
                  [](const TestTensor& t) { return t.name.starts_with(kName); });
    shards["m.safetensors"].push_back(
        {kName + ".weight", "I8", {kRows, kColumns}, converted.codes});
    shards["m.safetensors"].push_back(
        {kName + ".weight_scale", "F32", {kRows, 1}, FloatBytes(converted.scales)});
  }
  void Write(const Shards& shards, const std::string& config = Int8Config()) {
    std::filesystem::remove_all(folder_ / "out");
    WriteShards(folder_ / "out", shards, config);
    WriteFile(folder_ / "out/tokenizer.json", "{}");
  }
  VerifyReport Verify() {
    const auto report =
        VerifyCheckpoint({.source = folder_ / "source", .converted = folder_ / "out"});
    EXPECT_TRUE(report.ok()) << report.status().message();
    return report.ok() ? *report : VerifyReport{};
  }
  // All failures as one text; a mutation that passes is the worst that can happen.
  std::string Failures() {
    std::string text;
    for (const VerifyFailure& failure : Verify().failures)
      text += failure.object + ": " + failure.message + "\n";
    EXPECT_NE(text, "") << "the mutation was not noticed";
    return text;
  }
  std::string FailuresOf(const std::function<void(Converted&)>& mutate) {
    Converted converted = Convert();
    mutate(converted);
    Shards shards = good_;
    Set(shards, converted);
    Write(shards);
    return Failures();
  }
  TestTensor& Tensor(Shards& shards, const std::string& name) {
    for (TestTensor& tensor : shards["m.safetensors"])
      if (tensor.name == name) return tensor;
    throw std::out_of_range(name);
  }

  TempFolder folder_;
  Shards good_;
};

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
  EXPECT_THAT(
      FailuresOf([](Converted& c) {
        c.codes[77 * kColumns + 3] = static_cast<char>(c.codes[77 * kColumns + 3] ^ 1);
      }),
      HasSubstr(
          kName +
          ".weight: 1 rows differ from the source by more than half a step (the first: row 77"));
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
              HasSubstr("2 rows differ"));
}

TEST_F(VerifyTest, ScalesTimes127) {
  EXPECT_THAT(FailuresOf([](Converted& c) {
                for (float& s : c.scales) s *= 127;
              }),
              HasSubstr("130 rows differ"));
}

TEST_F(VerifyTest, SignsLost) {
  EXPECT_THAT(FailuresOf([](Converted& c) {
                for (char& q : c.codes) q = static_cast<char>(std::abs(static_cast<int8_t>(q)));
              }),
              HasSubstr("rows differ"));
}

TEST_F(VerifyTest, EverythingZero) {
  EXPECT_THAT(FailuresOf([](Converted& c) { std::fill(c.codes.begin(), c.codes.end(), '\0'); }),
              HasSubstr("130 rows differ"));
}

TEST_F(VerifyTest, RowsShiftedByOne) {
  EXPECT_THAT(FailuresOf([](Converted& c) {
                std::rotate(c.codes.begin(), c.codes.begin() + kColumns, c.codes.end());
              }),
              HasSubstr("rows differ"));
}

TEST_F(VerifyTest, TheLastBlockOfColumnsDropped) {
  EXPECT_THAT(FailuresOf([](Converted& c) {
                for (size_t row = 0; row < kRows; ++row)
                  for (size_t column = 128; column < kColumns; ++column)
                    c.codes[row * kColumns + column] = 0;
              }),
              HasSubstr("rows differ"));
}

TEST_F(VerifyTest, AWayThroughBf16) {
  Shards shards = good_;
  Set(shards, Convert([](float value) {
        uint32_t bits = 0;
        std::memcpy(&bits, &value, 4);
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000;
        std::memcpy(&value, &bits, 4);
        return value;
      }));
  Write(shards);
  EXPECT_THAT(Failures(), HasSubstr("rows differ from the source by more than half a step"));
}

TEST_F(VerifyTest, ScalesThatAreNoScales) {
  for (const float bad : {0.0f, -1.0f, static_cast<float>(NAN), static_cast<float>(INFINITY)})
    EXPECT_THAT(FailuresOf([&](Converted& c) { c.scales[9] = bad; }), HasSubstr("row 9 has"));
}

TEST_F(VerifyTest, NanInTheSource) {
  Shards source = {{"m.safetensors", good_["m.safetensors"]}};
  std::erase_if(source["m.safetensors"],
                [](const TestTensor& t) { return t.name.starts_with(kName); });
  std::string codes = Codes();
  codes[3 * kColumns] = '\x7F';
  source["m.safetensors"].push_back({kName + ".weight", "F8_E4M3", {kRows, kColumns}, codes});
  source["m.safetensors"].push_back(
      {kName + ".weight_scale_inv", "F32", {2, 2}, FloatBytes(kScales)});
  WriteCheckpoint(folder_ / "source", source, Fp8Config());
  EXPECT_THAT(Failures(), HasSubstr("no numbers in the source (the first: row 3)"));
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
  const auto swapped =
      VerifyCheckpoint({.source = folder_ / "out", .converted = folder_ / "source"});
  ASSERT_FALSE(swapped.ok());
  EXPECT_THAT(swapped.status().message(), HasSubstr("no F8_E4M3 matrix"));
}

}  // namespace
}  // namespace blockscale
