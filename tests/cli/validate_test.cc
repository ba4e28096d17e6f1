// blockscale validate as a user runs it.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/run_program.h"
#include "support/temp_folder.h"
#include "support/tensor_file.h"

namespace blockscale {
namespace {

using testing::ProgramRun;
using testing::RunProgram;

TEST(ValidateCommand, OneCaseAsTheReportSpellsIt) {
  const testing::TempFolder folder;
  const ProgramRun run =
      RunProgram({"validate", "--case", "activation=situ;tokens=3,routing=masked", "--json",
                  "--output", folder / "result.json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto json = nlohmann::json::parse(run.out);
  EXPECT_EQ(json, nlohmann::json::parse(testing::ReadFile(folder / "result.json")));
  ASSERT_EQ(json["cases"].size(), 1u);
  const auto& one = json["cases"][0];
  EXPECT_EQ(one["status"], "passed");
  EXPECT_EQ(one["backend"], "cpu");
  EXPECT_LE(one["error_over_bound"].get<double>(), 1);
  EXPECT_GT(one["local_slots"].get<int>(), 0);
  const ProgramRun again = RunProgram({"validate", "--case", one["case"], "--json"});
  const auto other = nlohmann::json::parse(again.out);
  EXPECT_EQ(other["cases"][0]["nrmse"], one["nrmse"]);
}

TEST(ValidateCommand, SmokeOnTheReferenceNamesWhoRan) {
  const ProgramRun run = RunProgram({"validate", "--backend", "reference", "--suite", "smoke",
                                     "--activation", "swiglu-oai", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto json = nlohmann::json::parse(run.out);
  EXPECT_GE(json["cases"].size(), 90u);
  EXPECT_EQ(json["summary"]["passed"], json["cases"].size());
  for (const auto& one : json["cases"]) EXPECT_EQ(one["backend"], "reference");
}

TEST(ValidateCommand, TextEndsWithCounts) {
  const ProgramRun run = RunProgram({"validate", "--case", "weights=nvfp4,inputs=nvfp4"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("1 cases on cpu, 1 passed"), std::string::npos) << run.out;
}

TEST(ValidateCommand, WhatABackendRefusesIsNoSuccess) {
  const ProgramRun run = RunProgram({"validate", "--case", "weights=fp16,inputs=bf16"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.out.find("convert with --to bf16"), std::string::npos) << run.out;
}

TEST(ValidateCommand, CasesGoOutAndOutputsOfElsewhereAreJudged) {
  const testing::TempFolder folder;
  const std::string text = "experts=4,hidden=64,intermediate=32;tokens=1";
  const ProgramRun out = RunProgram({"validate", "--case", text, "--export", folder / "cases"});
  ASSERT_EQ(out.exit_code, 0) << out.err;
  const auto list = nlohmann::json::parse(testing::ReadFile(folder / "cases/cases.json"));
  const std::string name = list["cases"][0]["case"];
  // Zeros are no right answer.
  testing::WriteFile(folder / "zeros",
                     testing::TensorFile({{name, "BF16", {1, 64}, std::string(128, '\0')}}));
  const ProgramRun wrong =
      RunProgram({"validate", "--case", text, "--candidate", folder / "zeros", "--json"});
  EXPECT_EQ(wrong.exit_code, 1) << wrong.err;
  const auto report = nlohmann::json::parse(wrong.out);
  EXPECT_EQ(report["cases"][0]["status"], "FAILED");
  EXPECT_EQ(report["backend"], folder / "zeros");
  const ProgramRun other =
      RunProgram({"validate", "--case", text + ",seed=2", "--candidate", folder / "zeros"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.err.find("none of the 1 cases"), std::string::npos) << other.err;
  EXPECT_EQ(RunProgram({"validate", "--case", text, "--export", folder / "cases"}).exit_code, 2);
}

TEST(ValidateCommand, ErrorsNameWhatThereIs) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"validate", "--backend", "gpu"}, "there are cpu, reference"},
      {{"validate", "--activation", "situp"}, "there are swiglu, situ"},
      {{"validate", "--activation", "situ(gate_beta=-1)"}, "above 0"},
      {{"validate", "--suite", "huge"}, "smoke"},
      {{"validate", "--case", "kimi"}, "known layers are kimi-k3"},
      {{"validate", "--case", "kimi-k3;tokens=0"}, "tokens=0"},
      {{"validate", "--case", "tp=1", "--output", "/no/such/folder/x.json"}, "cannot write"},
  };
  for (const auto& [arguments, part] : cases) {
    const ProgramRun run = RunProgram(arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments.back();
    EXPECT_NE(run.err.find(part), std::string::npos) << run.err;
  }
}

}  // namespace
}  // namespace blockscale
