// blockscale explain as a user runs it.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/run_program.h"
#include "support/temp_folder.h"

namespace blockscale {
namespace {

using testing::ProgramRun;
using testing::RunProgram;

TEST(ExplainCommand, KimiK3OnSm120) {
  const ProgramRun run = RunProgram({"explain", "--spec", "kimi-k3,ep=32:7", "--device", "sm120"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("-> flashinfer-cutlass runs"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("wants [up; gate]"), std::string::npos) << run.out;
}

TEST(ExplainCommand, JsonNamesEveryBackend) {
  const ProgramRun run = RunProgram({"explain", "--spec", "minimax-m2", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto json = nlohmann::json::parse(run.out);
  EXPECT_EQ(json["chosen"], "cpu");
  EXPECT_EQ(json["device"].get<std::string>().substr(0, 3), "cpu");
  EXPECT_EQ(json["backends"].size(), 8u);
}

TEST(ExplainCommand, NobodyIsNoSuccess) {
  const ProgramRun run =
      RunProgram({"explain", "--spec", "kimi-k3", "--device", "kunlun-p800", "--json"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_TRUE(nlohmann::json::parse(run.out)["chosen"].is_null());
}

TEST(ExplainCommand, ALayerOfACheckpoint) {
  const testing::TempFolder folder;
  ASSERT_EQ(RunProgram({"synth", "--family", "kimi-k3", "--output", folder / "k3"}).exit_code, 0);
  const ProgramRun run =
      RunProgram({"explain", "--checkpoint", folder / "k3", "--device", "sm120", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto json = nlohmann::json::parse(run.out);
  EXPECT_EQ(json["chosen"], "flashinfer-cutlass");
  EXPECT_NE(json["spec"].get<std::string>().find("weights=mxfp4"), std::string::npos);
  const ProgramRun bench = RunProgram({"bench", "--checkpoint", folder / "k3", "--layer", "1",
                                       "--tokens", "2", "--seconds", "0.01", "--json"});
  EXPECT_EQ(bench.exit_code, 0) << bench.err;
  const ProgramRun none = RunProgram({"explain", "--checkpoint", folder / "k3", "--layer", "7"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_NE(none.err.find("layer 7 has no experts"), std::string::npos) << none.err;
  EXPECT_EQ(RunProgram({"explain", "--checkpoint", folder / "k3", "--spec", "kimi-k3"}).exit_code,
            2);
}

TEST(ExplainCommand, ErrorsNameWhatThereIs) {
  EXPECT_NE(RunProgram({"explain", "--spec", "kimi-k3", "--device", "sm121"}).err.find("sm120"),
            std::string::npos);
  const ProgramRun forced =
      RunProgram({"explain", "--spec", "kimi-k3", "--device", "sm90", "--backend", "trtllm-gen"});
  EXPECT_EQ(forced.exit_code, 2);
  EXPECT_NE(forced.err.find("was asked for and refuses"), std::string::npos) << forced.err;
}

}  // namespace
}  // namespace blockscale
