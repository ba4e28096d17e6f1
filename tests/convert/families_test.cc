// Every family's own spelling, converted to what its users want and verified.
#include "model/families.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "blockscale/convert.h"
#include "blockscale/verify.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/stored_matrix.h"
#include "model/synth.h"
#include "support/temp_folder.h"

namespace blockscale {
namespace {

class FamilyConversionTest : public ::testing::Test {
 protected:
  void Synth(Family family) {
    SynthOptions options{.family = family, .output = folder_ / std::string(NameOf(family))};
    options.size = {.layers = 2, .experts = 3, .hidden = 256, .intermediate = 128, .vocab = 64};
    ASSERT_TRUE(SynthesizeCheckpoint(PosixFileSystem(), options).ok());
  }
  // Converts and verifies; returns the summary.
  ConvertSummary Convert(const std::string& from, const std::string& to, const Recipe& recipe) {
    std::filesystem::remove_all(folder_ / to);
    const auto summary = ConvertCheckpoint(
        {.source = folder_ / from, .output = folder_ / to, .recipe = recipe, .threads = 2});
    EXPECT_TRUE(summary.ok()) << from << " to " << to << ": " << summary.status().message();
    if (!summary.ok()) return {};
    const auto report = VerifyCheckpoint({.source = folder_ / from, .converted = folder_ / to});
    EXPECT_TRUE(report.ok()) << from << ": " << report.status().message();
    if (report.ok())
      for (const VerifyFailure& failure : report->failures)
        ADD_FAILURE() << from << " to " << to << ": " << failure.object << ": " << failure.message;
    return *summary;
  }
  std::vector<std::string> Names(const std::string& folder) {
    std::vector<std::string> names;
    const auto checkpoint = Checkpoint::Open(PosixFileSystem(), folder_ / folder);
    for (const TensorRef& tensor : checkpoint->tensors()) names.push_back(tensor.info->name);
    return names;
  }
  testing::TempFolder folder_;
};

TEST_F(FamilyConversionTest, EveryFamilyToEveryScheme) {
  for (const Family family : AllFamily()) {
    Synth(family);
    for (const Scheme scheme : AllScheme()) {
      const std::string name(NameOf(family)), to(NameOf(scheme));
      // What they are already.
      if (scheme == Scheme::kMxfp4 && (family == Family::kKimiK3 || family == Family::kGptOss))
        continue;
      if (scheme == Scheme::kFp8Block && family != Family::kKimiK3 && family != Family::kKimiK2 &&
          family != Family::kGptOss && family != Family::kDeepSeekV4)
        continue;
      EXPECT_GT(Convert(name, "out", RecipeFor(to)).matrices.size(), 0u) << name << " to " << to;
    }
  }
}

// A family that nobody has listed converts by what its tensors are.
TEST_F(FamilyConversionTest, AFamilyThatIsNotListedConvertsAllTheSame) {
  Synth(Family::kQwen3Moe);
  const auto path = folder_.path() / "qwen3-moe/config.json";
  auto config = nlohmann::ordered_json::parse(testing::ReadFile(path));
  config["model_type"] = "something_new";
  config["architectures"] = {"SomethingNewForCausalLM"};
  std::ofstream(path) << config.dump(2);
  EXPECT_EQ(Convert("qwen3-moe", "out", RecipeFor("mxfp8")).matrices.size(), 2u * (3 * 3 + 4));
}

// gpt-oss: experts come apart and together again, biases with them, bit for bit.
TEST_F(FamilyConversionTest, StackedExpertsComeApartAndTogetherAgain) {
  Synth(Family::kGptOss);
  Convert("gpt-oss", "apart", {.rules = {{.scheme = "keep"}}, .dialect = "compressed-tensors"});
  const std::vector<std::string> names = Names("apart");
  for (const char* name : {"model.layers.1.mlp.experts.2.up_proj.weight_packed",
                           "model.layers.1.mlp.experts.2.up_proj.bias",
                           "model.layers.0.mlp.experts.0.down_proj.weight_scale"})
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  Convert("apart", "together", {.rules = {{.scheme = "keep"}}, .dialect = "gpt-oss"});
  const auto a = Checkpoint::Open(PosixFileSystem(), folder_ / "gpt-oss");
  const auto b = Checkpoint::Open(PosixFileSystem(), folder_ / "together");
  ASSERT_EQ(a->tensors().size(), b->tensors().size());
  for (const TensorRef& tensor : a->tensors()) {
    const TensorRef found = b->Find(tensor.info->name);
    ASSERT_TRUE(found) << tensor.info->name;
    EXPECT_EQ(found.info->shape, tensor.info->shape) << tensor.info->name;
    EXPECT_EQ(*a->ReadAll(tensor, 1 << 24), *b->ReadAll(found, 1 << 24)) << tensor.info->name;
  }
}

// The layer that this project began with: MXFP4 experts to NVFP4, exactly.
TEST_F(FamilyConversionTest, KimiK3BecomesNvfp4Exactly) {
  Synth(Family::kKimiK3);
  for (const MatrixQuality& matrix : Convert("kimi-k3", "out", RecipeFor("nvfp4")).matrices) {
    EXPECT_EQ(matrix.inexact_blocks, 0u) << matrix.name;
    EXPECT_EQ(matrix.relative_rmse, 0.0) << matrix.name;
  }
}

}  // namespace
}  // namespace blockscale
