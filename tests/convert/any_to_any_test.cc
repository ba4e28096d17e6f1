// Every scheme to every other, in every spelling that is written: what comes out is verified by the
// other room's arithmetic, and the report says what that finds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "blockscale/convert.h"
#include "blockscale/verify.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/stored_matrix.h"
#include "model/synth.h"
#include "sample_checkpoint.h"
#include "support/temp_folder.h"

namespace blockscale {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class AnyToAnyTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new testing::TempFolder();
    SynthOptions options{.output = *folder_ / "fp8-block"};
    options.size = {.layers = 1, .experts = 3, .hidden = 256, .intermediate = 384, .vocab = 64};
    ASSERT_TRUE(SynthesizeCheckpoint(PosixFileSystem(), options).ok());
    for (const Scheme scheme : AllScheme())
      if (scheme != Scheme::kFp8Block) Make(scheme);
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }

  static std::string Path(const std::string& name) { return *folder_ / name; }
  static void Make(Scheme scheme) {
    const std::string name(NameOf(scheme));
    const auto made = Convert("fp8-block", name, RecipeFor(name));
    ASSERT_TRUE(made.ok()) << name << ": " << made.status().message();
  }
  static Result<ConvertSummary> Convert(const std::string& from, const std::string& to,
                                        const Recipe& recipe, unsigned threads = 2,
                                        uint64_t chunk_rows = 0) {
    std::filesystem::remove_all(Path(to));
    return ConvertCheckpoint({.source = Path(from),
                              .output = Path(to),
                              .recipe = recipe,
                              .threads = threads,
                              .chunk_rows = chunk_rows});
  }
  static std::string ErrorOf(const std::string& from, const Recipe& recipe) {
    const auto result = Convert(from, "bad", recipe);
    EXPECT_FALSE(result.ok());
    EXPECT_FALSE(std::filesystem::exists(Path("bad/config.json")));
    return result.ok() ? "" : result.status().message();
  }
  // Verifies, and compares what both rooms say of every matrix.
  static void ExpectVerified(const std::string& from, const std::string& to,
                             const ConvertSummary& summary, bool report_has_codes = true) {
    const auto report = VerifyCheckpoint({.source = Path(from), .converted = Path(to)});
    ASSERT_TRUE(report.ok()) << from << " to " << to << ": " << report.status().message();
    for (const VerifyFailure& failure : report->failures)
      ADD_FAILURE() << from << " to " << to << ": " << failure.object << ": " << failure.message;
    if (!report_has_codes) return;  // stacked experts count one by one there
    ASSERT_EQ(report->matrices.size(), summary.matrices.size()) << from << " to " << to;
    std::map<std::string, const MatrixQuality*> by_name;
    for (const MatrixQuality& matrix : report->matrices) by_name[matrix.name] = &matrix;
    for (const MatrixQuality& matrix : summary.matrices) {
      ASSERT_TRUE(by_name.contains(matrix.name)) << matrix.name;
      const MatrixQuality& other = *by_name[matrix.name];
      EXPECT_NEAR(matrix.relative_rmse, other.relative_rmse, 1e-7) << from << " to " << to;
      EXPECT_EQ(matrix.zero_rows, other.zero_rows) << matrix.name;
    }
  }
  static QuantSpec SpecIn(const std::string& name, const std::string& module) {
    const auto checkpoint = Checkpoint::Open(PosixFileSystem(), Path(name));
    EXPECT_TRUE(checkpoint.ok());
    const auto stored = FindStoredMatrices(*checkpoint);
    EXPECT_TRUE(stored.ok()) << stored.status().message();
    for (const StoredMatrix& matrix : stored->matrices)
      if (matrix.module.ends_with(module)) return matrix.spec;
    ADD_FAILURE() << "no " << module << " in " << name;
    return {};
  }

  static testing::TempFolder* folder_;
};

testing::TempFolder* AnyToAnyTest::folder_ = nullptr;

TEST_F(AnyToAnyTest, EveryPairIsVerified) {
  int pairs = 0;
  for (const Scheme from : AllScheme()) {
    for (const Scheme to : AllScheme()) {
      if (from == to || (from == Scheme::kNvfp4 && to == Scheme::kMxfp4)) continue;
      const std::string source(NameOf(from)), name = "pair";
      const auto summary = Convert(source, name, RecipeFor(std::string(NameOf(to))));
      ASSERT_TRUE(summary.ok()) << source << " to " << NameOf(to) << ": "
                                << summary.status().message();
      EXPECT_EQ(SpecIn(name, "q_proj").scheme, to);
      ExpectVerified(source, name, *summary);
      ++pairs;
    }
  }
  EXPECT_EQ(pairs, 109);  // 11 x 10, without the one that is refused
}

TEST_F(AnyToAnyTest, WhatTheTargetCanHoldIsExact) {
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"mxfp4", "bf16"},
                                                        {"mxfp4", "mxfp8"},
                                                        {"mxfp4", "fp8-block"},
                                                        {"mxfp4", "fp8-channel"},
                                                        {"mxfp4", "nvfp4"},
                                                        {"mxfp4", "f32"},
                                                        {"nvfp4", "f32"},
                                                        {"int8-channel", "f32"},
                                                        {"mxfp8", "bf16"},
                                                        {"fp8-block", "f32"}}) {
    const auto summary = Convert(from, "exact", RecipeFor(to));
    ASSERT_TRUE(summary.ok()) << summary.status().message();
    for (const MatrixQuality& matrix : summary->matrices) {
      EXPECT_EQ(matrix.inexact_blocks, 0u) << from << " to " << to << " " << matrix.name;
      EXPECT_EQ(matrix.relative_rmse, 0) << from << " to " << to << " " << matrix.name;
    }
  }
}

// Blocks of 128 x 128 with powers of two as scales, FP32 or E8M0, are blocks of 32 with the same.
TEST_F(AnyToAnyTest, Fp8BlocksWithPowersOfTwoBecomeMxfp8Exactly) {
  for (const char* format : {"f32", "e8m0"}) {
    Recipe recipe = RecipeFor("fp8-block");
    recipe.rules[0].scale_rule = "ceil";
    recipe.rules[0].scale_format = format;
    const auto powers = Convert("bf16", "powers", recipe);
    ASSERT_TRUE(powers.ok()) << powers.status().message();
    const auto exact = Convert("powers", "exact", RecipeFor("mxfp8"));
    ASSERT_TRUE(exact.ok()) << exact.status().message();
    ExpectVerified("powers", "exact", *exact);
    for (const MatrixQuality& matrix : exact->matrices)
      EXPECT_EQ(matrix.inexact_blocks, 0u) << format << " " << matrix.name;
  }
}

// The cast copies the codes, and both halves of a fused matrix share the global scale.
TEST_F(AnyToAnyTest, Mxfp4BecomesNvfp4WithItsOwnCodes) {
  ASSERT_TRUE(Convert("mxfp4", "cast", RecipeFor("nvfp4")).ok());
  const auto before = Checkpoint::Open(PosixFileSystem(), Path("mxfp4"));
  const auto after = Checkpoint::Open(PosixFileSystem(), Path("cast"));
  std::map<std::string, std::string> globals;
  for (const TensorRef& tensor : after->tensors()) {
    const auto bytes = after->ReadAll(tensor, 1 << 22);
    if (tensor.info->name.ends_with(".weight_packed")) {
      EXPECT_EQ(*bytes, *before->ReadAll(before->Find(tensor.info->name), 1 << 22));
    }
    if (tensor.info->name.ends_with(".weight_global_scale"))
      globals[tensor.info->name] =
          std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  }
  const std::string layer = "model.layers.0.", end = ".weight_global_scale";
  for (int expert = 0; expert < 3; ++expert) {
    const std::string name = fmt::format("{}block_sparse_moe.experts.{}.", layer, expert);
    EXPECT_EQ(globals.at(name + "w1" + end), globals.at(name + "w3" + end));
  }
  EXPECT_EQ(globals.at(layer + "self_attn.q_proj" + end),
            globals.at(layer + "self_attn.v_proj" + end));
}

TEST_F(AnyToAnyTest, Nvfp4HalvesShareAGlobalScaleHoweverTheyAreMade) {
  for (const char* rule : {"absmax", "four-over-six", "sweep"}) {
    Recipe recipe = RecipeFor("nvfp4");
    recipe.rules[0].scale_rule = rule;
    const auto summary = Convert("bf16", "shared", recipe);
    ASSERT_TRUE(summary.ok()) << summary.status().message();
    ExpectVerified("bf16", "shared", *summary);
    const auto checkpoint = Checkpoint::Open(PosixFileSystem(), Path("shared"));
    const std::string name = "model.layers.0.block_sparse_moe.experts.1.";
    const auto global = [&](const std::string& part) {
      return *checkpoint->ReadAll(checkpoint->Find(name + part + ".weight_global_scale"), 4);
    };
    EXPECT_EQ(global("w1"), global("w3"));
    EXPECT_NE(global("w1"), global("w2"));
  }
}

TEST_F(AnyToAnyTest, SpellingsComeBackBitForBit) {
  for (const auto& [scheme, there, back] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {"fp8-block", "compressed-tensors", "deepseek"},
           {"mxfp4", "gpt-oss", "compressed-tensors"},
           {"nvfp4", "modelopt", "compressed-tensors"}}) {
    Recipe recipe{.rules = {{.scheme = "keep"}}, .dialect = there};
    std::string source = scheme;
    if (there == "gpt-oss") {  // quantises experts only
      ASSERT_TRUE(
          Convert("bf16", "experts", {.rules = {{.tensor_class = "experts", .scheme = scheme}}})
              .ok());
      source = "experts";
    }
    const auto first = Convert(source, "there", recipe);
    ASSERT_TRUE(first.ok()) << there << ": " << first.status().message();
    ExpectVerified(source, "there", *first, there != "gpt-oss");
    recipe.dialect = back;
    const auto second = Convert("there", "back", recipe);
    ASSERT_TRUE(second.ok()) << back << ": " << second.status().message();
    const auto a = Checkpoint::Open(PosixFileSystem(), Path(source));
    const auto b = Checkpoint::Open(PosixFileSystem(), Path("back"));
    ASSERT_TRUE(b.ok());
    size_t compared = 0;
    for (const TensorRef& tensor : a->tensors()) {
      // gpt-oss has names of its own for gate, up and down.
      if (there == "gpt-oss" && tensor.info->name.find("experts") != std::string::npos) continue;
      const TensorRef found = b->Find(tensor.info->name);
      ASSERT_TRUE(found) << tensor.info->name;
      // The inverse of the inverse may be a bit off: not every FP32 number is an inverse of one.
      if (tensor.info->name.ends_with("global_scale")) continue;
      EXPECT_EQ(*a->ReadAll(tensor, 1 << 22), *b->ReadAll(found, 1 << 22)) << tensor.info->name;
      ++compared;
    }
    EXPECT_GT(compared, 5u);
  }
}

TEST_F(AnyToAnyTest, ClassesGoTheirOwnWays) {
  const Recipe recipe{.rules = {{.tensor_class = "experts", .scheme = "mxfp4"},
                                {.match = "o_proj$", .scheme = "bf16"},
                                {.tensor_class = "attention", .scheme = "fp8-channel"},
                                {.scheme = "keep"}}};
  const auto summary = Convert("fp8-block", "mixed", recipe);
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  ExpectVerified("fp8-block", "mixed", *summary);
  EXPECT_EQ(SpecIn("mixed", "experts.0.w1").scheme, Scheme::kMxfp4);
  EXPECT_EQ(SpecIn("mixed", "q_proj").scheme, Scheme::kFp8Channel);
  EXPECT_EQ(SpecIn("mixed", "o_proj").scheme, Scheme::kBF16);
  const auto config = nlohmann::json::parse(testing::ReadFile(*folder_ / "mixed/config.json"));
  const auto& quantization = config["quantization_config"];
  EXPECT_EQ(quantization["format"], "mixed-precision");
  EXPECT_EQ(quantization["config_groups"].size(), 2u);
  EXPECT_EQ(quantization["config_groups"]["group_0"]["format"], "mxfp4-pack-quantized");
  const auto report =
      nlohmann::json::parse(testing::ReadFile(*folder_ / "mixed/conversion_report.json"));
  EXPECT_EQ(report["recipe"], nlohmann::json::parse(RecipeJson(recipe)));
  EXPECT_EQ(report["dialect"], "compressed-tensors");
}

TEST_F(AnyToAnyTest, SensitiveWeightsAreKeptUnlessNamed) {
  const auto all = Convert("bf16", "all", RecipeFor("fp8-channel"));
  ASSERT_TRUE(all.ok());
  EXPECT_TRUE(all->plan.warnings.empty());
  EXPECT_EQ(SpecIn("all", "block_sparse_moe.gate").scheme, Scheme::kF32);
  EXPECT_EQ(SpecIn("all", "lm_head").scheme, Scheme::kBF16);
  const auto named =
      Convert("bf16", "named", {.rules = {{.tensor_class = "router", .scheme = "fp8-channel"}}});
  ASSERT_TRUE(named.ok()) << named.status().message();
  ASSERT_EQ(named->plan.warnings.size(), 1u);
  EXPECT_THAT(named->plan.warnings[0], HasSubstr("router"));
  EXPECT_EQ(SpecIn("named", "block_sparse_moe.gate").scheme, Scheme::kFp8Channel);
}

TEST_F(AnyToAnyTest, Nvfp4NeverBecomesMxfp4) {
  const std::string message = ErrorOf("nvfp4", RecipeFor("mxfp4"));
  EXPECT_THAT(message, AllOf(HasSubstr("is NVFP4 and stays so"), HasSubstr("bf16 or fp8")));
  EXPECT_THAT(ErrorOf("nvfp4", {.rules = {{.match = "w1", .scheme = "mxfp4"}}}),
              HasSubstr("is NVFP4 and stays so"));
}

TEST_F(AnyToAnyTest, RecipesThatCannotBe) {
  EXPECT_THAT(ErrorOf("bf16", {.rules = {{.scheme = "mxfp4"}}, .dialect = "deepseek"}),
              HasSubstr("has no words for it"));
  EXPECT_THAT(ErrorOf("bf16", {.rules = {{.scheme = "mxfp4"}}, .dialect = "gpt-oss"}),
              HasSubstr("experts only"));
  EXPECT_THAT(ErrorOf("bf16", {.rules = {{.scheme = "nvfp4", .scale_rule = "exact-cast"}}}),
              HasSubstr("for MXFP4 sources"));
  EXPECT_THAT(ErrorOf("bf16", {.rules = {{.scheme = "keep"}}}), HasSubstr("nothing to convert"));
  EXPECT_THAT(ErrorOf("bf16", {}), HasSubstr("no rules"));
}

TEST_F(AnyToAnyTest, BytesDependOnNothingButTheSource) {
  for (const std::string scheme : {"nvfp4", "fp8-block", "fp8-tensor", "int4-group"}) {
    ASSERT_TRUE(Convert("bf16", "one", RecipeFor(scheme), 1, 0).ok());
    ASSERT_TRUE(Convert("bf16", "many", RecipeFor(scheme), 4, 7).ok());
    EXPECT_EQ(testing::FolderBytes(Path("one")).size(), testing::FolderBytes(Path("many")).size());
    for (const auto& [name, bytes] : testing::FolderBytes(Path("one")))
      EXPECT_TRUE(testing::FolderBytes(Path("many")).at(name) == bytes) << scheme << " " << name;
  }
}

// With absmax / 127.5 the largest element of a row may be clipped: the report and verify count
// alike.
TEST_F(AnyToAnyTest, ClippedCodesAreCountedAlike) {
  std::filesystem::remove_all(Path("clip"));
  const auto summary = ConvertCheckpoint({.source = Path("fp8-block"),
                                          .output = Path("clip"),
                                          .recipe = RecipeFor("int8-channel"),
                                          .range = Int8Range::k128});
  ASSERT_TRUE(summary.ok());
  const auto report = VerifyCheckpoint({.source = Path("fp8-block"), .converted = Path("clip")});
  ASSERT_TRUE(report.ok());
  uint64_t converted = 0, verified = 0;
  for (const MatrixQuality& matrix : summary->matrices) converted += matrix.clipped;
  for (const MatrixQuality& matrix : report->matrices) verified += matrix.clipped;
  EXPECT_GT(converted, 100u);
  EXPECT_EQ(converted, verified);
}

// Predictions are what conversions come to, and the page shows them.
TEST_F(AnyToAnyTest, TheComparisonPredictsWhatConversionsCost) {
  std::filesystem::remove_all(Path("none"));
  const auto costs = CompareSchemes(
      {.source = Path("bf16"), .output = Path("none"), .recipe = RecipeFor("mxfp4")});
  ASSERT_TRUE(costs.ok()) << costs.status().message();
  EXPECT_FALSE(std::filesystem::exists(Path("none")));
  std::map<std::string, const SchemeCost*> by_name;
  for (const SchemeCost& cost : *costs) by_name[cost.scheme + " " + cost.scale_rule] = &cost;
  EXPECT_EQ(by_name.size(), 24u);
  for (const auto& [scheme, rule] :
       std::vector<std::pair<std::string, std::string>>{{"mxfp4", "ceil"},
                                                        {"nvfp4", "absmax"},
                                                        {"nvfp4", "sweep"},
                                                        {"int8-channel", "absmax"},
                                                        {"fp8-block", "absmax"},
                                                        {"int4-group", "mse"},
                                                        {"mxfp8", "floor"}}) {
    Recipe recipe = RecipeFor(scheme);
    if (!rule.empty()) recipe.rules[0].scale_rule = rule;
    const auto summary = Convert("bf16", "costs", recipe);
    ASSERT_TRUE(summary.ok()) << summary.status().message();
    double worst = 0, best = 1;
    for (const MatrixQuality& matrix : summary->matrices) {
      worst = std::max(worst, matrix.relative_rmse);
      best = std::min(best, matrix.relative_rmse);
    }
    ASSERT_TRUE(by_name.contains(scheme + " " + rule)) << scheme << " " << rule;
    const SchemeCost& cost = *by_name[scheme + " " + rule];
    EXPECT_GT(cost.relative_rmse, 0.95 * best) << scheme << " " << rule;
    EXPECT_LT(cost.relative_rmse, 1.05 * worst) << scheme << " " << rule;
    uint64_t kept = 0;
    for (const auto& [name, bytes] : testing::FolderBytes(Path("costs"))) kept += bytes.size();
    EXPECT_LT(cost.bytes, kept);
  }
  const std::string page = testing::ReadFile(*folder_ / "costs/conversion_report.html");
  EXPECT_THAT(page, AllOf(HasSubstr("id=\"comparison\""), HasSubstr("<b>mxfp8, floor</b>"),
                          HasSubstr("nvfp4, four-over-six")));
}

// A byte somewhere in a converted shard, in place of another.
class MutatedTest : public AnyToAnyTest {
 protected:
  // Writes `bytes` over the start of a tensor of `name`'s output and returns what verify says.
  std::string Failures(const std::string& name, const std::string& tensor,
                       const std::string& bytes) {
    std::filesystem::remove_all(Path("mutated"));
    std::filesystem::copy(Path(name), Path("mutated"));
    {
      const auto checkpoint = Checkpoint::Open(PosixFileSystem(), Path("mutated"));
      const TensorRef found = checkpoint->Find(tensor);
      EXPECT_TRUE(found) << tensor;
      std::fstream file(found.shard->file->path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(found.shard->header.data_start + found.info->begin));
      file << bytes;
    }
    return VerifyFailures("mutated");
  }
  static std::string VerifyFailures(const std::string& converted) {
    const auto report =
        VerifyCheckpoint({.source = Path("fp8-block"), .converted = Path(converted)});
    EXPECT_TRUE(report.ok()) << report.status().message();
    std::string text;
    for (const VerifyFailure& failure : report->failures)
      text += failure.object + ": " + failure.message + "\n";
    return text;
  }
  const std::string kQ = "model.layers.0.self_attn.q_proj";
};

TEST_F(MutatedTest, VerifySeesEveryKind) {
  const std::string zeros(256, '\0');
  for (const std::string name : {"mxfp4", "nvfp4", "int4-group"}) {
    EXPECT_THAT(Failures(name, kQ + ".weight_packed", std::string(64, '\x77')),
                HasSubstr("more than half a step"))
        << name;
  }
  for (const std::string name : {"mxfp8", "fp8-channel", "int8-channel"})
    EXPECT_THAT(Failures(name, kQ + ".weight", std::string(64, '\x11')), HasSubstr("half a step"))
        << name;
  EXPECT_THAT(Failures("mxfp4", kQ + ".weight_scale", "\xFF"), HasSubstr("not"));
  EXPECT_THAT(Failures("bf16", kQ + ".weight", zeros), HasSubstr("half a step"));
  EXPECT_THAT(Failures("mxfp4", "model.norm.weight", "xx"), HasSubstr("kept bit for bit"));
}

// A runtime chooses its loader by what the config says of the tensors.
TEST_F(MutatedTest, AConfigThatSaysSomethingElseOfTheTensorsIsSeen) {
  const auto failures_with = [&](const std::string& name, const std::string& from,
                                 const std::string& to) {
    std::filesystem::remove_all(Path("mutated"));
    std::filesystem::copy(Path(name), Path("mutated"));
    const std::filesystem::path path = *folder_ / "mutated/config.json";
    std::string config = testing::ReadFile(path);
    const size_t at = config.find(from);
    EXPECT_NE(at, std::string::npos) << name << ": " << from;
    if (at != std::string::npos) config.replace(at, from.size(), to);
    testing::WriteFile(path, config);
    return VerifyFailures("mutated");
  };
  for (const std::string name :
       {"mxfp4", "nvfp4", "mxfp8", "int4-group", "fp8-channel", "int8-channel"}) {
    EXPECT_THAT(failures_with(name, "-quantized\"", "-quantised\""), HasSubstr("format")) << name;
    EXPECT_THAT(failures_with(name, "\"symmetric\": true", "\"symmetric\": false"),
                HasSubstr("symmetric"))
        << name;
    EXPECT_NE(failures_with(name, "\"num_bits\": ", "\"num_bits\": 1"), "") << name;
  }
}

// Zeros under a scale that is large enough for them to be the nearest codes.
TEST_F(MutatedTest, AScaleThatHidesItsErrorsIsSeen) {
  std::filesystem::remove_all(Path("hidden"));
  for (const std::string name : {"mxfp4", "mxfp8", "nvfp4", "int8-channel", "fp8-channel"}) {
    const auto checkpoint = Checkpoint::Open(PosixFileSystem(), Path(name));
    const auto stored = FindStoredMatrices(*checkpoint);
    for (const StoredMatrix& matrix : stored->matrices) {
      if (matrix.module != kQ) continue;
      const std::string codes(matrix.codes.info->bytes(), '\0');
      // One power of two too many: 2^127, 448 times the global scale, 1e30.
      const std::string scale = matrix.spec.scale == Format::kE8M0 ? "\xFE"
                                : matrix.spec.scale == Format::kUE4M3
                                    ? "\x7E"
                                    : testing::FloatBytes({1e30f});
      std::string scales;
      while (scales.size() < matrix.scales.info->bytes()) scales += scale;
      std::filesystem::remove_all(Path("mutated"));
      std::filesystem::copy(Path(name), Path("mutated"));
      for (const auto& [tensor, bytes] :
           {std::pair(matrix.codes, codes), {matrix.scales, scales}}) {
        std::fstream file(std::filesystem::path(Path("mutated")) / tensor.shard->name,
                          std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(
            static_cast<std::streamoff>(tensor.shard->header.data_start + tensor.info->begin));
        file << bytes;
      }
      const auto report =
          VerifyCheckpoint({.source = Path("fp8-block"), .converted = Path("mutated")});
      ASSERT_TRUE(report.ok());
      EXPECT_FALSE(report->failures.empty()) << name;
    }
  }
}

// Continued after any number of shards, the result is the same, global scales and all.
TEST_F(AnyToAnyTest, AStoppedRunIsContinuedInEveryScheme) {
  for (const std::string scheme : {"nvfp4", "int4-group", "fp8-tensor"}) {
    ASSERT_TRUE(Convert("bf16", "whole", RecipeFor(scheme)).ok());
    std::filesystem::remove_all(Path("stopped"));
    std::atomic<bool> stop = false;
    ConvertOptions options{.source = Path("bf16"),
                           .output = Path("stopped"),
                           .recipe = RecipeFor(scheme),
                           .threads = 1,
                           .stop = &stop};
    options.progress = [&](const ConvertProgress& state) { stop = stop || state.shards_done > 0; };
    EXPECT_FALSE(ConvertCheckpoint(options).ok());
    options.progress = {};
    options.stop = nullptr;
    options.resume = true;
    options.threads = 4;
    options.recipe = RecipeFor("bf16");
    EXPECT_FALSE(ConvertCheckpoint(options).ok()) << "another recipe is refused";
    options.recipe = RecipeFor(scheme);
    // A link out of the folder, and a partial file of somebody else.
    std::filesystem::create_directory_symlink(Path("whole"), Path("stopped/link"));
    std::ofstream(Path("whole/precious.partial")) << "1";
    std::ofstream(Path("stopped/mine.partial")) << "2";
    const auto resumed = ConvertCheckpoint(options);
    ASSERT_TRUE(resumed.ok()) << resumed.status().message();
    EXPECT_GT(resumed->shards_reused, 0u);
    EXPECT_TRUE(std::filesystem::exists(Path("whole/precious.partial")));
    EXPECT_TRUE(std::filesystem::exists(Path("stopped/mine.partial")));
    std::filesystem::remove(Path("whole/precious.partial"));
    std::filesystem::remove(Path("stopped/mine.partial"));
    std::filesystem::remove(Path("stopped/link"));
    for (const auto& [name, bytes] : testing::FolderBytes(Path("whole")))
      EXPECT_TRUE(testing::FolderBytes(Path("stopped")).at(name) == bytes) << scheme << " " << name;
  }
}

}  // namespace
}  // namespace blockscale
