// One FP8 matrix with edge blocks, some tensors that are kept, and the right INT8 result of it,
// made by an oracle of the tests' own in the plainest way: the ground on which verify is tested.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "blockscale/verify.h"
#include "support/temp_folder.h"
#include "support/tensor_file.h"

namespace blockscale::testing {

using Shards = std::map<std::string, std::vector<TestTensor>>;

constexpr size_t kRows = 130, kColumns = 200;
inline const std::string kName = "model.layers.0.self_attn.o_proj";

// Codes that differ in every row and column; no NaN.
inline std::string Codes() {
  std::string codes(kRows * kColumns, '\0');
  for (size_t i = 0; i < codes.size(); ++i) {
    const size_t code = (i * 131 + i / kColumns * 7) % 254;
    codes[i] = static_cast<char>(code < 127 ? code : code + 1);
  }
  return codes;
}

// A grid of 2 x 2 that differs from its transpose; every value is a BF16 too.
inline const std::vector<float> kScales = {0x1.06p-10f, 0x1.06p-9f, 0x1.cap-9f, 0x1.6ep-11f};

inline float Value(uint8_t code) {
  const int exponent = code >> 3 & 15;
  const float whole = static_cast<float>((exponent == 0 ? 0 : 8) + (code & 7));
  const float value = std::ldexp(whole, (exponent == 0 ? 1 : exponent) - 10);
  return code >= 128 ? -value : value;
}

struct Converted {
  std::string codes = std::string(kRows * kColumns, '\0');
  std::vector<float> scales = std::vector<float>(kRows);
};

struct Arithmetic {
  std::string codes = Codes();
  std::vector<float> grid = kScales;  // 2 x 2
  float steps = 127.0f;               // from zero to a row's largest value: 127, or 127.5
  // A path of the values: the identity, or BF16 for the contaminated one.
  std::function<float(float)> round_value = [](float v) { return v; };
};

inline Converted Convert(const Arithmetic& with = {}) {
  Converted out;
  for (size_t row = 0; row < kRows; ++row) {
    std::vector<float> values(kColumns);
    float largest = 0;
    for (size_t column = 0; column < kColumns; ++column) {
      values[column] =
          with.round_value(Value(static_cast<uint8_t>(with.codes[row * kColumns + column])) *
                           with.grid[row / 128 * 2 + column / 128]);
      largest = std::max(largest, std::fabs(values[column]));
    }
    out.scales[row] = largest > 0 ? largest / with.steps : 1.0f;
    for (size_t column = 0; column < kColumns; ++column) {
      const float code = std::nearbyint(values[column] / out.scales[row]);
      out.codes[row * kColumns + column] =
          static_cast<char>(static_cast<int8_t>(std::min(code, 127.0f)));
    }
  }
  return out;
}

inline std::string Int8Config(
    const std::string& ignore = R"(["lm_head", "model.layers.0.mlp.gate"])") {
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
inline void WriteShards(const std::filesystem::path& folder, const Shards& shards,
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
    WriteSource({{kName + ".weight_scale_inv", "F32", {2, 2}, FloatBytes(kScales)}});
    WriteFile(folder_ / "source/tokenizer.json", "{}");
    good_ = {{"m.safetensors", Kept()}};
    Set(good_, Convert());
    Write(good_);
  }

  static std::vector<TestTensor> Kept() {
    return {{"lm_head.weight", "BF16", {2, 4}, std::string(16, 'l')},
            {"model.layers.0.mlp.gate.weight", "F32", {1, 2}, std::string(8, 'g')},
            {"model.norm.weight", "BF16", {4}, std::string(8, 'n')}};
  }
  // A source with these scales (or none, or several) and codes.
  void WriteSource(const std::vector<TestTensor>& scales, const std::string& codes = Codes()) {
    Shards source = {{"m.safetensors", Kept()}};
    auto& tensors = source["m.safetensors"];
    tensors.push_back({kName + ".weight", "F8_E4M3", {kRows, kColumns}, codes});
    tensors.insert(tensors.end(), scales.begin(), scales.end());
    WriteCheckpoint(folder_ / "source", source, Fp8Config());
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
  VerifyReport Verify(VerifyOptions options = {}) {
    options.source = folder_ / "source";
    options.converted = folder_ / "out";
    const auto report = VerifyCheckpoint(options);
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
  // The only matrix, which must hold.
  MatrixQuality Good() {
    const VerifyReport report = Verify();
    for (const VerifyFailure& failure : report.failures)
      ADD_FAILURE() << failure.object << ": " << failure.message;
    EXPECT_EQ(report.matrices.size(), 1u);
    return report.matrices.size() == 1 ? report.matrices[0] : MatrixQuality{};
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

}  // namespace blockscale::testing
