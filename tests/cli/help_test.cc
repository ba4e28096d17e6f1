// The help of every command is a contract: tests/cli/help.txt holds it as it is promised. After a
// wanted change: BLOCKSCALE_UPDATE_HELP=1 build/tests/cli/cli_tests --gtest_filter='Help.*'

#include <gtest/gtest.h>

#include <cstdlib>

#include "support/run_program.h"
#include "support/temp_folder.h"

namespace blockscale {
namespace {

TEST(Help, IsAsPromised) {
  std::string text;
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--help"},
                                                    {"inspect", "--help"},
                                                    {"convert", "--help"},
                                                    {"verify", "--help"},
                                                    {"check", "--help"},
                                                    {"synth", "--help"},
                                                    {"diff", "--help"},
                                                    {"validate", "--help"},
                                                    {"explain", "--help"},
                                                    {"run", "--help"},
                                                    {"bench", "--help"}}) {
    const testing::ProgramRun run = testing::RunProgram(arguments);
    EXPECT_EQ(run.exit_code, 0);
    EXPECT_EQ(run.err, "");
    text += "$ blockscale";
    for (const std::string& argument : arguments) text += " " + argument;
    text += "\n" + run.out + "\n";
  }
  const std::string path = BLOCKSCALE_HELP_FILE;
  if (std::getenv("BLOCKSCALE_UPDATE_HELP") != nullptr) testing::WriteFile(path, text);
  EXPECT_EQ(text, testing::ReadFile(path));
}

}  // namespace
}  // namespace blockscale
