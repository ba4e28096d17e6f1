// blockscale bench as a user runs it: figures that hang together, errors that say what to change.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/run_program.h"

namespace blockscale {
namespace {

using testing::ProgramRun;
using testing::RunProgram;

constexpr char kSmall[] = "experts=4,top-k=2,hidden=256,intermediate=128";

TEST(BenchCommand, FiguresHangTogether) {
  const ProgramRun run = RunProgram({"bench", "--spec", kSmall, "--tokens", "1,8", "--threads", "1",
                                     "--seconds", "0.01", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto json = nlohmann::json::parse(run.out);
  EXPECT_EQ(json["threads"], 1);
  EXPECT_GT(json["read_bytes_per_second"].get<double>(), 1e8);
  EXPECT_GT(json["dot_flops_per_second"].get<double>(), 1e8);
  ASSERT_EQ(json["points"].size(), 2u);
  for (const auto& point : json["points"]) {
    EXPECT_GE(point["runs"].get<int>(), 5);
    EXPECT_EQ(point["backend"], "cpu");
    const double slots = 2.0 * point["tokens"].get<double>();
    const double operations = 6.0 * 256 * 128 * slots;
    EXPECT_NEAR(point["flops_per_second"].get<double>() * point["seconds"].get<double>(),
                operations, 1e-6 * operations);
    EXPECT_NEAR(
        point["share_of_dot_peak"].get<double>() * json["dot_flops_per_second"].get<double>(),
        point["flops_per_second"].get<double>(), 1);
    EXPECT_LE(point["best_seconds"].get<double>(), point["seconds"].get<double>());
    EXPECT_GE(point["slots_per_expert"].get<double>(), slots / 4);
  }
  // One token's two experts: packed bytes of both, each once.
  const auto& one = json["points"][0];
  const double packed = 2.0 * 3 * 256 * 128 * (0.5 + 1.0 / 32);
  EXPECT_NEAR(one["weight_bytes_per_second"].get<double>() * one["seconds"].get<double>(), packed,
              0.01 * packed);
}

TEST(BenchCommand, TextNamesTheKernelAndTheLimits) {
  const ProgramRun run =
      RunProgram({"bench", "--spec", std::string(kSmall) + ",weights=nvfp4,inputs=bf16", "--tokens",
                  "2", "--seconds", "0.01"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("memory reads"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("weights=nvfp4"), std::string::npos) << run.out;
}

TEST(BenchCommand, TheReferenceRunsToo) {
  const ProgramRun run = RunProgram({"bench", "--spec", "hidden=64,intermediate=32", "--tokens",
                                     "1", "--seconds", "0.01", "--backend", "reference", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(nlohmann::json::parse(run.out)["points"][0]["backend"], "reference");
}

TEST(BenchCommand, ErrorsSayWhatToChange) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"bench", "--spec", "kimi-k3,ep=128"}, "use a smaller ep"},
      {{"bench", "--spec", "kimi-k2"}, "known layers are"},
      {{"bench", "--spec", kSmall, "--tokens", "0"}, "1"},
      {{"bench", "--spec", kSmall, "--backend", "cuda"}, "there are cpu, reference"},
      {{"bench"}, "--spec LAYER or --checkpoint FOLDER, one of them"},
  };
  for (const auto& [arguments, part] : cases) {
    const ProgramRun run = RunProgram(arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments.back();
    EXPECT_NE(run.err.find(part), std::string::npos) << run.err;
  }
}

}  // namespace
}  // namespace blockscale
