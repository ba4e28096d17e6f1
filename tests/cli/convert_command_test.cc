// The convert command under what happens to programs: kill -9, signals, little memory, two at once.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "support/run_program.h"
#include "support/temp_folder.h"

namespace blockscale {
namespace {

using ::testing::HasSubstr;
using namespace testing;  // NOLINT
using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class ConvertCommandTest : public ::testing::Test {
 protected:
  // About 100 MB in six shards: long enough to be interrupted.
  void SynthMedium() {
    const ProgramRun run = RunProgram(
        {"synth", "--family", "minimax-m2", "--output", folder_ / "fp8", "--layers", "2",
         "--experts", "32", "--hidden", "768", "--intermediate", "640", "--shards", "6"});
    ASSERT_EQ(run.exit_code, 0) << run.err;
  }
  std::vector<std::string> Arguments(const std::string& output,
                                     std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"convert",        "--source", folder_ / "fp8", "--output",
                                          folder_ / output, "--to",     "int8-channel"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  std::map<std::string, std::string> Bytes(const std::string& output) {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / output)) {
      const std::string name = entry.path().filename();
      if (name == "conversion_state.json" || name == "conversion_report.html") continue;
      files[name] = ReadFile(entry.path());
    }
    return files;
  }
  TempFolder folder_;
};

TEST_F(ConvertCommandTest, SurvivesKillNineAgainAndAgain) {
  SynthMedium();
  ASSERT_EQ(RunProgram(Arguments("whole")).exit_code, 0);
  // Killed later and later into the run, continued with other settings each time.
  int killed = 0;
  for (int attempt = 0; attempt < 12; ++attempt) {
    const ProgramRun run =
        RunProgram(Arguments("out", {"--resume", "--threads", std::to_string(1 + attempt % 3),
                                     "--chunk-rows", std::to_string(16 << attempt % 4)}),
                   [&](pid_t child) {
                     std::this_thread::sleep_for(std::chrono::milliseconds(5 + 7 * attempt));
                     kill(child, SIGKILL);
                   });
    killed += run.exit_code == 128 + SIGKILL;
  }
  EXPECT_GE(killed, 3);
  const ProgramRun last = RunProgram(Arguments("out", {"--resume"}));
  ASSERT_EQ(last.exit_code, 0) << last.err;
  EXPECT_EQ(Bytes("out") == Bytes("whole"), true);
}

TEST_F(ConvertCommandTest, SignalsStopItWithinTwoSecondsAndItContinues) {
  SynthMedium();
  ASSERT_EQ(RunProgram(Arguments("whole")).exit_code, 0);
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string output = "out" + std::to_string(signal);
    Clock::time_point sent;
    const ProgramRun run =
        RunProgram(Arguments(output, {"--threads", "1", "--chunk-rows", "1"}), [&](pid_t child) {
          while (!std::filesystem::exists(folder_ / output + "/conversion_state.json"))
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          sent = Clock::now();
          kill(child, signal);
        });
    EXPECT_EQ(run.exit_code, 130) << run.err;
    EXPECT_LT(SecondsSince(sent), 2.0);
    EXPECT_THAT(run.err, HasSubstr("--resume"));
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / output))
      EXPECT_NE(entry.path().extension(), ".partial");
    ASSERT_EQ(RunProgram(Arguments(output, {"--resume"})).exit_code, 0);
    EXPECT_EQ(Bytes(output) == Bytes("whole"), true);
  }
}

TEST_F(ConvertCommandTest, MemoryStaysUnder400MiBWhateverTheSize) {
  // One gigabyte of zeros in two matrices an expert, over almost no disk.
  const ProgramRun synth =
      RunProgram({"synth", "--family", "minimax-m2", "--output", folder_ / "fp8", "--layers", "1",
                  "--experts", "2", "--hidden", "16384", "--intermediate", "10240", "--heads", "4",
                  "--shards", "2", "--sparse"});
  ASSERT_EQ(synth.exit_code, 0) << synth.err;
  const ProgramRun run = RunProgram(Arguments("out", {"--threads", "8", "--quiet"}));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_LT(run.peak_kib, 400 * 1024);
  EXPECT_EQ(run.out + run.err, "");  // --quiet
  const ProgramRun rows =
      RunProgram(Arguments("rows", {"--threads", "8", "--chunk-rows", "1000000", "--quiet"}));
  EXPECT_EQ(rows.exit_code, 0) << rows.err;
  EXPECT_LT(rows.peak_kib, 400 * 1024);
}

TEST_F(ConvertCommandTest, DryRunOfTheRealSizeIsQuickAndExact) {
  ASSERT_EQ(RunProgram({"synth", "--family", "minimax-m2", "--output", folder_ / "fp8", "--full",
                        "--sparse"})
                .exit_code,
            0);
  const auto start = Clock::now();
  const ProgramRun run = RunProgram(Arguments("out", {"--dry-run", "--json"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_LT(SecondsSince(start), 30.0);  // 0.7 s alone; sanitizers and neighbours take their share
  EXPECT_LT(run.peak_kib, 400 * 1024);
  const auto json = nlohmann::json::parse(run.out);
  EXPECT_EQ(json["matrices"], 47864);
  EXPECT_EQ(json["source_shards"], 125);
  EXPECT_EQ(json["output_shards"], 125);
  EXPECT_EQ(json["output_bytes"], 230458974208);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
}

TEST_F(ConvertCommandTest, PrintsJson) {
  ASSERT_EQ(RunProgram({"synth", "--family", "minimax-m2", "--output", folder_ / "fp8"}).exit_code,
            0);
  const ProgramRun run =
      RunProgram(Arguments("out", {"--json", "--verify", "--int8-range", "128"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto json = nlohmann::json::parse(run.out);
  EXPECT_EQ(json["complete"], true);
  EXPECT_EQ(json["verified"], true);
  EXPECT_EQ(json["matrices"], 56);
}

TEST_F(ConvertCommandTest, FlagsOutOfRangeAreRefused) {
  for (const std::vector<std::string>& flags : {std::vector<std::string>{"--threads", "-1"},
                                                {"--threads", "257"},
                                                {"--threads", "x"},
                                                {"--chunk-rows", "-5"},
                                                {"--chunk-rows", "99999999999999999999"},
                                                {"--int8-range", "126"},
                                                {"--resume-check", "some"},
                                                {"--to", "int9"}}) {
    const ProgramRun run = RunProgram(Arguments("out", flags));
    EXPECT_EQ(run.exit_code, 2) << flags[0] << " " << flags[1];
    EXPECT_THAT(run.err, HasSubstr(flags[0]));
  }
}

TEST_F(ConvertCommandTest, AReaderThatLeftIsNoCrash) {
  ASSERT_EQ(RunProgram({"synth", "--family", "minimax-m2", "--output", folder_ / "fp8"}).exit_code,
            0);
  const std::string command = std::string(BLOCKSCALE_PROGRAM) + " inspect --json " +
                              (folder_ / "fp8") + " | head -n 1 >/dev/null; exit ${PIPESTATUS[0]}";
  const int status = std::system(("bash -c '" + command + "'").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace blockscale
