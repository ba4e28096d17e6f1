// One layer of a checkpoint: every family's spelling, both ways of reading experts, files in and
// out.

#include "backends/run_layer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "model/checkpoint_layer.h"
#include "model/synth.h"
#include "support/temp_folder.h"
#include "support/tensor_file.h"

namespace blockscale {
namespace {

void Synth(Family family, const std::string& folder, uint64_t experts = 8) {
  SynthOptions options{.family = family, .output = folder};
  options.size.experts = experts;
  options.size.layers = 2;
  const auto made = SynthesizeCheckpoint(PosixFileSystem(), options);
  ASSERT_TRUE(made.ok()) << made.status().message();
}

RunLayerReport RunWell(RunLayerOptions options) {
  const auto report = RunLayer(PosixFileSystem(), options);
  EXPECT_TRUE(report.ok()) << report.status().message();
  return report.ok() ? *report : RunLayerReport();
}

std::string Message(RunLayerOptions options) {
  return RunLayer(PosixFileSystem(), options).status().message();
}

std::vector<float> OutputOf(const std::string& path) {
  auto file = PosixFileSystem().OpenForRead(path);
  EXPECT_TRUE(file.ok());
  const auto header = ReadSafetensorsHeader(**file);
  EXPECT_TRUE(header.ok());
  for (const TensorInfo& tensor : header->tensors) {
    if (tensor.name != "output") continue;
    std::vector<uint16_t> codes(tensor.bytes() / 2);
    EXPECT_TRUE(
        (*file)
            ->ReadAt(header->data_start + tensor.begin, std::as_writable_bytes(std::span(codes)))
            .ok());
    std::vector<float> values;
    for (const uint16_t code : codes) values.push_back(BF16::Decode(code));
    return values;
  }
  ADD_FAILURE() << "no output in " << path;
  return {};
}

double RelativeRmse(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}

TEST(RunLayer, EveryFamilyOnTheCpuAndOnTheReference) {
  for (const Family family : AllFamily()) {
    const testing::TempFolder folder;
    Synth(family, folder / "model");
    RunLayerOptions options{.checkpoint = folder / "model", .layer = 1, .random = 6};
    options.output = folder / "cpu.safetensors";
    const RunLayerReport report = RunWell(options);
    EXPECT_EQ(report.spec.experts, 8u) << NameOf(family);
    EXPECT_EQ(report.spec.intermediate, 384u) << NameOf(family);
    EXPECT_EQ(report.info.backend, "cpu");
    options.backend = "reference";
    options.output = folder / "reference.safetensors";
    RunWell(options);
    const auto cpu = OutputOf(folder / "cpu.safetensors");
    const auto reference = OutputOf(folder / "reference.safetensors");
    ASSERT_EQ(cpu.size(), 6u * report.spec.hidden);
    ASSERT_EQ(cpu.size(), reference.size());
    EXPECT_LT(RelativeRmse(cpu, reference), 5e-3) << NameOf(family);
  }
}

TEST(RunLayer, ActivationsComeFromTheConfig) {
  const std::pair<Family, Activation> families[] = {
      {Family::kKimiK3, SiTU()},
      {Family::kGptOss, SwiGluOai()},
      {Family::kDeepSeekV4, SwiGlu(1.0f, 0.0f, 10.0f)},
      {Family::kMiniMaxM2, SwiGlu()},
  };
  for (const auto& [family, activation] : families) {
    const testing::TempFolder folder;
    Synth(family, folder / "model");
    const auto checkpoint = Checkpoint::Open(PosixFileSystem(), folder / "model");
    ASSERT_TRUE(checkpoint.ok());
    const auto layer = FindLayer(*checkpoint, 1);
    ASSERT_TRUE(layer.ok()) << layer.status().message();
    EXPECT_EQ(layer->spec.activation, activation) << NameOf(family);
    EXPECT_EQ(layer->spec.biases, family == Family::kGptOss);
  }
}

TEST(RunLayer, ExpertsOnDiskAreTheChosenOnesAndGiveTheSameBytes) {
  const testing::TempFolder folder;
  Synth(Family::kMiniMaxM2, folder / "model", 64);
  RunLayerOptions options{.checkpoint = folder / "model", .layer = 0, .random = 2};
  options.output = folder / "all.safetensors";
  const RunLayerReport all = RunWell(options);
  EXPECT_EQ(all.experts_read, 64u);
  options.experts_on_disk = true;
  options.output = folder / "chosen.safetensors";
  const RunLayerReport chosen = RunWell(options);
  EXPECT_LE(chosen.experts_read, 16u);
  EXPECT_LT(chosen.prepared_bytes * 3, all.prepared_bytes);
  EXPECT_EQ(testing::ReadFile(folder / "all.safetensors"),
            testing::ReadFile(folder / "chosen.safetensors"));
}

std::string Int32Bytes(const std::vector<int32_t>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * 4};
}

TEST(RunLayer, TokensFromAFile) {
  const testing::TempFolder folder;
  Synth(Family::kGptOss, folder / "model");
  const std::vector<float> x(2 * 256, 0.25f), weights = {0.5f, 0.25f, 0.125f, 0.125f, 1, 1, 1, 1};
  const auto write = [&](const std::vector<int32_t>& ids, const char* name) {
    testing::WriteFile(
        folder / name,
        testing::TensorFile({{"hidden_states", "F32", {2, 256}, testing::FloatBytes(x)},
                             {"topk_ids", "I32", {2, 4}, Int32Bytes(ids)},
                             {"topk_weights", "F32", {2, 4}, testing::FloatBytes(weights)}}));
  };
  write({0, 3, 5, 7, -1, -1, -1, -1}, "tokens.safetensors");
  RunLayerOptions options{.checkpoint = folder / "model", .layer = 0};
  options.tokens = folder / "tokens.safetensors";
  options.output = folder / "out.safetensors";
  EXPECT_EQ(RunWell(options).tokens, 2u);
  const auto output = OutputOf(options.output);
  double size = 0;
  for (size_t k = 0; k < 256; ++k) {
    size += std::fabs(output[k]);
    EXPECT_EQ(output[256 + k], 0);  // no expert: a row of zeros
  }
  EXPECT_GT(size, 0);
  EXPECT_NE(Message(options).find("is there"), std::string::npos);
  write({0, 3, 5, 8, -1, -1, -1, -1}, "wrong.safetensors");
  options.tokens = folder / "wrong.safetensors";
  options.output = folder / "other.safetensors";
  EXPECT_EQ(Message(options),
            "token 0 slot 3: expert id 8 is out of range; ids are 0 to 7, or -1 for "
            "none");
  EXPECT_FALSE(PosixFileSystem().Exists(options.output));
}

TEST(RunLayer, ComparesWithAnotherRunOfTheSameTokens) {
  const testing::TempFolder folder;
  Synth(Family::kMiniMaxM2, folder / "model", 64);
  RunLayerOptions options{.checkpoint = folder / "model", .layer = 0, .random = 3};
  options.output = folder / "first.safetensors";
  EXPECT_FALSE(RunWell(options).relative_rmse);
  options.compare = options.output;
  options.output = folder / "second.safetensors";
  EXPECT_EQ(RunWell(options).relative_rmse, 0);
  options.layer = 1;  // other weights, same tokens
  options.output = folder / "third.safetensors";
  EXPECT_GT(*RunWell(options).relative_rmse, 0.5);
  options.seed = 2;
  options.output = folder / "fourth.safetensors";
  EXPECT_NE(Message(options).find("chose other experts"), std::string::npos);
  options.random = 4;
  EXPECT_NE(Message(options).find("the layer takes [4, 256]"), std::string::npos)
      << Message(options);
  EXPECT_FALSE(PosixFileSystem().Exists(options.output));
}

TEST(RunLayer, ErrorsNameWhatIsMissing) {
  const testing::TempFolder folder;
  Synth(Family::kDeepSeekV3, folder / "model");
  RunLayerOptions options{.checkpoint = folder / "model", .layer = 9, .random = 1};
  options.output = folder / "out.safetensors";
  EXPECT_NE(Message(options).find("layer 9 has no experts; layers "), std::string::npos)
      << Message(options);
  options.layer = 1;
  options.backend = "gpu";
  EXPECT_NE(Message(options).find("there are cpu, reference"), std::string::npos);
  options.backend = "cpu";
  options.tokens = folder / "none.safetensors";
  EXPECT_NE(Message(options).find("none.safetensors"), std::string::npos);
  testing::WriteFile(
      folder / "bad.safetensors",
      testing::TensorFile(
          {{"hidden_states", "F32", {1, 8}, testing::FloatBytes(std::vector<float>(8))}}));
  options.tokens = folder / "bad.safetensors";
  EXPECT_NE(
      Message(options).find("tensor 'hidden_states' is [1, 8]; the layer takes [tokens, 256]"),
      std::string::npos)
      << Message(options);
}

}  // namespace
}  // namespace blockscale
