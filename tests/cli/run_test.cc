// blockscale run as a user runs it.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/run_program.h"
#include "support/temp_folder.h"

namespace blockscale {
namespace {

using testing::ProgramRun;
using testing::RunProgram;

TEST(RunCommand, LayerOfASyntheticKimiK3) {
  const testing::TempFolder folder;
  ASSERT_EQ(RunProgram({"synth", "--family", "kimi-k3", "--output", folder / "k3"}).exit_code, 0);
  const std::vector<std::string> base = {
      "run", "--checkpoint", folder / "k3", "--layer", "1", "--random", "4"};
  auto first = base;
  first.insert(first.end(), {"--output", folder / "a.safetensors", "--json"});
  const ProgramRun run = RunProgram(first);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto json = nlohmann::json::parse(run.out);
  EXPECT_NE(json["spec"].get<std::string>().find("activation=situ"), std::string::npos);
  EXPECT_EQ(json["backend"], "cpu");
  auto second = base;
  second.insert(second.end(), {"--output", folder / "b.safetensors", "--backend", "reference",
                               "--compare", folder / "a.safetensors"});
  const ProgramRun other = RunProgram(second);
  ASSERT_EQ(other.exit_code, 0) << other.err;
  EXPECT_NE(other.out.find("relative RMSE to"), std::string::npos) << other.out;
}

TEST(RunCommand, TokensOrRandomOneOfThem) {
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, {"--random", "2", "--tokens", "x.safetensors"}}) {
    std::vector<std::string> arguments = {"run", "--checkpoint", "x", "--layer",
                                          "0",   "--output",     "y"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramRun run = RunProgram(arguments);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_NE(run.err.find("one of them"), std::string::npos) << run.err;
  }
}

}  // namespace
}  // namespace blockscale
