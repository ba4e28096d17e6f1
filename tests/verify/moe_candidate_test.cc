// A third party's way: cases are exported, outputs come back in a file and are judged.

#include "verify/moe_candidate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "backends/cpu/cpu_backend.h"
#include "backends/reference/reference.h"
#include "checkpoint/tensor_file.h"
#include "support/temp_folder.h"
#include "verify/moe_export.h"

namespace blockscale {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;

std::vector<MoeCase> Cases() {
  std::vector<MoeCase> cases;
  for (const char* text :
       {"activation=situ;tokens=3", "activation=situ;tokens=3,routing=masked,seed=2",
        "weights=nvfp4,inputs=nvfp4,biases=yes,output=f32;tokens=2"}) {
    const auto parsed = ParseMoeCase(text);
    EXPECT_TRUE(parsed.ok()) << parsed.status().message();
    cases.push_back(*parsed);
  }
  return cases;
}

std::vector<std::byte> Output(const MoeCase& c) {
  const auto weights = MakeCaseWeights(c.spec, c.seed);
  const CaseData data = MakeCaseData(c);
  std::vector<std::byte> output(c.tokens * OutputRowBytes(c.spec));
  EXPECT_TRUE((*MakeCpuBackend()->Prepare(c.spec, *weights))->Run(data.call(), output.data()).ok());
  return output;
}

NamedTensor Tensor(const MoeCase& c, std::span<const std::byte> data, uint64_t runs = 0) {
  std::vector<uint64_t> shape = {c.tokens, c.spec.hidden};
  if (runs > 0) shape.insert(shape.begin(), runs);
  return {ToString(c), c.spec.output == OutputType::kF32 ? DType::kF32 : DType::kBF16, shape, data};
}

Result<std::vector<CaseResult>> Judge(const std::vector<MoeCase>& cases,
                                      const std::vector<NamedTensor>& tensors) {
  const TempFolder folder;
  const std::string path = folder / "out.safetensors";
  EXPECT_TRUE(WriteTensorFile(PosixFileSystem(), path, tensors).ok());
  return JudgeCandidate(PosixFileSystem(), path, cases, *MakeReferenceOracle(), nullptr);
}

TEST(MoeCandidate, RightOutputsPassAndOneWrongElementFails) {
  const auto cases = Cases();
  std::vector<std::vector<std::byte>> outputs;
  for (const MoeCase& c : cases) outputs.push_back(Output(c));
  outputs[1][2 * 77 + 1] ^= std::byte{0x80};  // the sign of element 77
  std::vector<NamedTensor> tensors;
  for (size_t i = 0; i < cases.size(); ++i) tensors.push_back(Tensor(cases[i], outputs[i]));
  const auto results = Judge(cases, tensors);
  ASSERT_TRUE(results.ok()) << results.status().message();
  ASSERT_EQ(results->size(), 3u);
  EXPECT_EQ((*results)[0].status, CaseStatus::kPassed) << (*results)[0].message;
  EXPECT_EQ((*results)[1].status, CaseStatus::kFailed);
  EXPECT_EQ((*results)[1].comparison.column, 77u);
  EXPECT_EQ((*results)[2].status, CaseStatus::kPassed) << (*results)[2].message;
}

TEST(MoeCandidate, RunsMustHaveTheSameBits) {
  MoeCase c = Cases()[2];  // FP32: a bit more or less is within the bound
  const auto one = Output(c);
  std::vector<std::byte> runs = one;
  runs.insert(runs.end(), one.begin(), one.end());
  auto results = Judge({c}, {Tensor(c, runs, 2)});
  ASSERT_TRUE(results.ok());
  EXPECT_EQ((*results)[0].status, CaseStatus::kPassed) << (*results)[0].message;
  runs[one.size()] ^= std::byte{1};
  results = Judge({c}, {Tensor(c, runs, 2)});
  EXPECT_THAT((*results)[0].message, HasSubstr("run 1 has other bits"));
  c.spec.finalize = Finalize::kAtomic;
  results = Judge({c}, {Tensor(c, runs, 2)});
  EXPECT_EQ((*results)[0].status, CaseStatus::kPassed) << (*results)[0].message;
}

TEST(MoeCandidate, WhatIsMissingOrOfAnotherShapeHasFailed) {
  const auto cases = Cases();
  const auto output = Output(cases[0]);
  NamedTensor other = Tensor(cases[0], output);
  other.shape = {cases[0].tokens * cases[0].spec.hidden};
  const auto results = Judge(cases, {other});
  ASSERT_TRUE(results.ok());
  EXPECT_THAT((*results)[0].message, HasSubstr("it must be BF16 [3, 256]"));
  EXPECT_THAT((*results)[1].message, HasSubstr("no tensor of this name"));
  for (const CaseResult& result : *results) EXPECT_EQ(result.status, CaseStatus::kFailed);
}

TEST(MoeCandidate, ATensorThatIsNoCaseIsAnError) {
  const auto cases = Cases();
  const auto output = Output(cases[0]);
  const auto results = Judge({cases[1]}, {Tensor(cases[0], output)});
  ASSERT_FALSE(results.ok());
  EXPECT_THAT(results.status().message(), HasSubstr("none of the 1 cases"));
}

TEST(MoeExport, WritesWhatTheCasesAreMadeOf) {
  const TempFolder folder;
  const auto cases = Cases();
  size_t done = 0;
  ASSERT_TRUE(
      ExportCases(PosixFileSystem(), folder / "x", cases, [&](size_t n) { done = n; }).ok());
  EXPECT_EQ(done, 3u);
  const auto json = nlohmann::json::parse(testing::ReadFile(folder / "x/cases.json"));
  ASSERT_EQ(json["cases"].size(), 3u);
  EXPECT_EQ(json["cases"][2]["case"], ToString(cases[2]));
  EXPECT_EQ(json["cases"][0]["spec"]["activation"]["linear_beta"][0], 25);
  EXPECT_NE(json["cases"][0]["weights"], json["cases"][1]["weights"]);  // another seed
  const auto call = TensorFile::Open(PosixFileSystem(),
                                     folder / "x/" + json["cases"][2]["call"].get<std::string>());
  const auto weights = TensorFile::Open(
      PosixFileSystem(), folder / "x/" + json["cases"][2]["weights"].get<std::string>());
  ASSERT_TRUE(call.ok() && weights.ok());
  const CaseData data = MakeCaseData(cases[2]);
  EXPECT_EQ(*call->Read<std::byte>(*call->Find("input_codes")), data.inputs.codes);
  EXPECT_EQ(*call->Read<int32_t>(*call->Find("topk_ids")), data.ids);
  EXPECT_EQ(*weights->Read<std::byte>(*weights->Find("w2_scales")),
            MakeCaseStack(cases[2].spec, cases[2].seed).w2_scales);
  EXPECT_EQ(weights->Find("w13_bias")->shape, (std::vector<uint64_t>{8, 256}));
}

TEST(MoeExport, NothingIsOverwritten) {
  const TempFolder folder;
  const Status again = ExportCases(PosixFileSystem(), folder.path(), Cases(), nullptr);
  EXPECT_EQ(again.code(), StatusCode::kRefused);
}

}  // namespace
}  // namespace blockscale
