#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "blockscale/diff.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include "support/tensor_file.h"

namespace blockscale {
namespace {

using testing::FloatBytes;
using testing::TestTensor;

// A plain matrix [2, 4], an INT8 one of the same values, and a norm.
std::vector<TestTensor> Tensors() {
  return {{"a.norm.weight", "F32", {2}, FloatBytes({1, 2})},
          {"m.q_proj.weight", "F32", {2, 4}, FloatBytes({1, 2, 3, 4, -10, 0, 20, 30})}};
}

class DiffTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, std::vector<TestTensor> tensors) {
    testing::WriteCheckpoint(folder_.path() / name, {{"m.safetensors", std::move(tensors)}}, "{}");
  }
  DiffReport Diff() {
    const auto report = DiffCheckpoints({.a = folder_ / "a", .b = folder_ / "b"});
    EXPECT_TRUE(report.ok()) << report.status().message();
    return report.ok() ? *report : DiffReport{};
  }
  testing::TempFolder folder_;
};

TEST_F(DiffTest, TheSameIsTheSame) {
  Write("a", Tensors());
  Write("b", Tensors());
  const DiffReport report = Diff();
  EXPECT_TRUE(report.differences.empty());
  EXPECT_EQ(report.compared, 2u);
  EXPECT_EQ(report.same, 2u);
}

TEST_F(DiffTest, ValuesAreMeasured) {
  Write("a", Tensors());
  std::vector<TestTensor> other = Tensors();
  other[1].bytes = FloatBytes({1, 2, 3, 4, -10, 0, 20, 31});
  Write("b", other);
  const DiffReport report = Diff();
  ASSERT_EQ(report.differences.size(), 1u);
  const TensorDifference& one = report.differences[0];
  EXPECT_EQ(one.name, "m.q_proj");
  EXPECT_EQ(one.kind, "values");
  EXPECT_EQ(one.differing, 1u);
  EXPECT_EQ(one.largest, 1.0);
  EXPECT_NEAR(one.relative_rmse, 1 / std::sqrt(1 + 4 + 9 + 16 + 100 + 400 + 900), 1e-12);
}

// Another scheme that holds the same values.
TEST_F(DiffTest, SchemesMayDifferWhereValuesDoNot) {
  Write("a", Tensors());
  Write("b", {Tensors()[0],
              {"m.q_proj.weight", "I8", {2, 4}, std::string("\x01\x02\x03\x04\xFF\x00\x02\x03", 8)},
              {"m.q_proj.weight_scale", "F32", {2, 1}, FloatBytes({1, 10})}});
  const DiffReport report = Diff();
  ASSERT_EQ(report.differences.size(), 1u);
  EXPECT_EQ(report.differences[0].kind, "scheme");
  EXPECT_EQ(report.differences[0].a, "f32 [2, 4] (plain)");
  EXPECT_EQ(report.differences[0].b, "int8-channel [2, 4] (compressed-tensors)");
}

TEST_F(DiffTest, EveryKindIsTold) {
  Write("a", {Tensors()[0], Tensors()[1], {"only.a", "F32", {1}, FloatBytes({1})}});
  Write("b", {{"a.norm.weight", "F32", {2}, FloatBytes({1, 3})},
              {"m.q_proj.weight", "F32", {4, 2}, FloatBytes({1, 2, 3, 4, -10, 0, 20, 30})},
              {"only.b.weight", "F32", {1, 1}, FloatBytes({1})}});
  std::vector<std::string> kinds;
  for (const TensorDifference& one : Diff().differences) kinds.push_back(one.name + " " + one.kind);
  EXPECT_THAT(kinds, ::testing::ElementsAre("a.norm.weight bytes", "m.q_proj shape",
                                            "only.a only in a", "only.b only in b"));
}

TEST_F(DiffTest, TheCommandSaysItInTwoWays) {
  Write("a", Tensors());
  std::vector<TestTensor> other = Tensors();
  other[1].bytes[3] = '\x40';
  Write("b", other);
  const auto text = testing::RunProgram({"diff", folder_ / "a", folder_ / "b"});
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_THAT(text.out, ::testing::HasSubstr("1 elements differ"));
  EXPECT_THAT(text.out, ::testing::HasSubstr("2 compared, 1 the same, 1 differences"));
  const auto run = testing::RunProgram({"diff", folder_ / "a", folder_ / "b", "--json"});
  EXPECT_EQ(nlohmann::json::parse(run.out)["differences"][0]["name"], "m.q_proj");
  EXPECT_EQ(testing::RunProgram({"diff", folder_ / "a", folder_ / "a"}).exit_code, 0);
  EXPECT_EQ(testing::RunProgram({"diff", folder_ / "a", folder_ / "none"}).exit_code, 2);
}

}  // namespace
}  // namespace blockscale
