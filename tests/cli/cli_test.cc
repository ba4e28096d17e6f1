// Every command from the outside: exit codes, streams, JSON.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "blockscale/version.h"
#include "support/run_program.h"
#include "support/temp_folder.h"

namespace blockscale {
namespace {

using ::testing::HasSubstr;
using namespace testing;  // NOLINT
using Json = nlohmann::json;

class CliTest : public ::testing::Test {
 protected:
  void Synth(const std::string& name, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {
        "synth", "--family",       "minimax-m2", "--output", folder_ / name, "--hidden",
        "128",   "--intermediate", "192",        "--vocab",  "64",           "--heads",
        "2",     "--kv-heads",     "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramRun run = RunProgram(arguments);
    ASSERT_EQ(run.exit_code, 0) << run.err;
  }
  ProgramRun Convert(const std::string& from, const std::string& to,
                     std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"convert",    "--source", folder_ / from, "--output",
                                          folder_ / to, "--to",     "int8-channel"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunProgram(arguments);
  }
  TempFolder folder_;
};

TEST_F(CliTest, VersionAndUsage) {
  const ProgramRun version = RunProgram({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_EQ(version.out, std::string("blockscale ") + Version() + "\n");
  EXPECT_EQ(RunProgram({}).exit_code, 2);
  EXPECT_EQ(RunProgram({"no-such-command"}).exit_code, 2);
  EXPECT_EQ(RunProgram({"inspect"}).exit_code, 2);
  EXPECT_EQ(RunProgram({"inspect", "/x", "--no-such-flag"}).exit_code, 2);
}

TEST_F(CliTest, TheWholeWay) {
  Synth("fp8");
  const ProgramRun dry = Convert("fp8", "int8", {"--dry-run"});
  EXPECT_EQ(dry.exit_code, 0);
  EXPECT_THAT(dry.out, HasSubstr("Dry run: nothing was written"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "int8"));
  const ProgramRun converted = Convert("fp8", "int8", {"--verify"});
  EXPECT_EQ(converted.exit_code, 0) << converted.err;
  EXPECT_TRUE(converted.out.ends_with("Complete\n")) << converted.out;
  EXPECT_THAT(converted.out, HasSubstr("0 failures"));
  // Where stderr is no terminal: one line a shard.
  EXPECT_THAT(converted.err, HasSubstr("converting 1/3 model-00000-of-00004.safetensors\n"));
  const ProgramRun verified =
      RunProgram({"verify", "--source", folder_ / "fp8", "--converted", folder_ / "int8",
                  "--report", folder_ / "report.json", "--html", folder_ / "report.html"});
  EXPECT_EQ(verified.exit_code, 0) << verified.out;
  EXPECT_TRUE(verified.out.ends_with("Everything holds\n"));
  const Json report = Json::parse(ReadFile(folder_ / "report.json"));
  EXPECT_EQ(report["holds"], true);
  EXPECT_EQ(report["matrices"].size(), 56u);
  EXPECT_THAT(ReadFile(folder_ / "report.html"), HasSubstr("id=\"worst\""));
  for (const char* runtime : {"vllm", "vllm-kunlun"}) {
    const ProgramRun check = RunProgram({"check", folder_ / "int8", "--runtime", runtime});
    EXPECT_EQ(check.exit_code, 0) << check.out;
    EXPECT_TRUE(check.out.ends_with("Loads as it is meant\n"));
  }
}

TEST_F(CliTest, VerifySaysNoAndNamesWhat) {
  Synth("fp8");
  ASSERT_EQ(Convert("fp8", "int8").exit_code, 0);
  const std::string shard = folder_ / "int8/model-00001-of-00004.safetensors";
  std::string bytes = ReadFile(shard);
  bytes.back() ^= 0x40;
  WriteFile(shard, bytes);
  const ProgramRun verified =
      RunProgram({"verify", "--source", folder_ / "fp8", "--converted", folder_ / "int8"});
  EXPECT_EQ(verified.exit_code, 1);
  EXPECT_THAT(verified.out, HasSubstr("FAILED"));
  EXPECT_THAT(verified.out, HasSubstr("NOT everything holds"));
  const ProgramRun json = RunProgram(
      {"verify", "--source", folder_ / "fp8", "--converted", folder_ / "int8", "--json"});
  EXPECT_EQ(json.exit_code, 1);
  EXPECT_EQ(Json::parse(json.out)["holds"], false);
  EXPECT_EQ(Json::parse(json.out)["failures"].size(), 1u);
}

TEST_F(CliTest, VerifyCanSampleAndMatch) {
  Synth("fp8");
  ASSERT_EQ(Convert("fp8", "int8").exit_code, 0);
  const auto count = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"verify",      "--source",       folder_ / "fp8",
                                          "--converted", folder_ / "int8", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramRun run = RunProgram(arguments);
    return run.exit_code == 0 ? Json::parse(run.out)["matrices"].size() : 1000 + run.exit_code;
  };
  EXPECT_EQ(count({}), 56u);
  EXPECT_EQ(count({"--all"}), 56u);
  EXPECT_EQ(count({"--sample", "5"}), 5u);
  EXPECT_EQ(count({"--sample", "5000"}), 56u);
  EXPECT_EQ(count({"--match", "self_attn\\.[qk]_proj"}), 4u);
  EXPECT_EQ(count({"--match", "no_such_matrix"}), 1002u);
  EXPECT_EQ(count({"--match", "(("}), 1002u);
  EXPECT_EQ(count({"--all", "--sample", "5"}), 1002u);
  EXPECT_EQ(count({"--sample", "0"}), 1002u);
}

TEST_F(CliTest, VerifyWritesNothingIntoTheSource) {
  Synth("fp8");
  ASSERT_EQ(Convert("fp8", "int8").exit_code, 0);
  const ProgramRun run = RunProgram({"verify", "--source", folder_ / "fp8", "--converted",
                                     folder_ / "int8", "--report", folder_ / "fp8/report.json"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("never written to"));
}

TEST_F(CliTest, InspectHasTwoStrengths) {
  Synth("fp8");
  const ProgramRun plain = RunProgram({"inspect", folder_ / "fp8"});
  EXPECT_EQ(plain.exit_code, 0);
  EXPECT_THAT(plain.out, HasSubstr("fp8-block 128x128"));
  const ProgramRun strict = RunProgram({"inspect", folder_ / "fp8", "--strict", "--json"});
  EXPECT_EQ(strict.exit_code, 1);  // the shard names lie, as the family's do
  const Json json = Json::parse(strict.out);
  EXPECT_EQ(json["family"], "minimax-m2");
  EXPECT_EQ(json["data_read"], true);
  EXPECT_EQ(json["fp8_matrices"], 56);
  for (const Json& finding : json["findings"]) EXPECT_EQ(finding["kind"], "shard-count");
}

TEST_F(CliTest, InspectJsonIsJsonWhateverFilesAreCalled) {
  Synth("fp8");
  WriteFile(folder_.path() / "fp8" / "odd\xff\n\x1b.safetensors", "x");
  const ProgramRun run = RunProgram({"inspect", folder_ / "fp8", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(Json::parse(run.out)["findings"].dump(), HasSubstr("unindexed-shard"));
}

TEST_F(CliTest, ErrorsAreOneLineOnStderrAndExitTwo) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"inspect", "/no/such/folder"},
        {"convert", "--source", "/no/such/folder", "--output", folder_ / "x", "--to",
         "int8-channel"},
        {"verify", "--source", "/no/such/folder", "--converted", "/none"},
        {"check", "/no/such/folder", "--runtime", "vllm"}}) {
    const ProgramRun run = RunProgram(arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments[0];
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(run.err, HasSubstr("blockscale: error: cannot examine /no/such/folder"));
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1);
  }
}

TEST_F(CliTest, SynthChecksItsSizes) {
  const auto error = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"synth", "--family", "minimax-m2", "--output",
                                          folder_ / "x"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramRun run = RunProgram(arguments);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "x"));
    return run.err;
  };
  EXPECT_THAT(error({"--layers", "0"}), HasSubstr("--layers is 0"));
  EXPECT_THAT(error({"--hidden", "99999999999"}), HasSubstr("--hidden is 99999999999"));
  EXPECT_THAT(error({"--heads", "5", "--kv-heads", "2"}), HasSubstr("not a multiple"));
  EXPECT_THAT(error({"--shards", "1000"}), HasSubstr("--shards is 1000"));
  EXPECT_THAT(error({"--layers", "-1"}), HasSubstr("--layers"));
  EXPECT_THAT(error({"--family", "no-such-family"}), HasSubstr("--family"));
  EXPECT_THAT(error({"--full", "--layers", "2"}), HasSubstr("--full"));
  WriteFile(folder_ / "full/file", "x");
  const ProgramRun run =
      RunProgram({"synth", "--family", "minimax-m2", "--output", folder_ / "full"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("not empty"));
}

}  // namespace
}  // namespace blockscale
