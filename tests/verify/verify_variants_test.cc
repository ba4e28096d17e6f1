// What may differ between right checkpoints (names, types and places of scales; the range of the
// codes), what the numbers of the report mean, and which matrices are looked at.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/faulty_file_system.h"
#include "verify/matrix_check.h"
#include "verify/verify_checkpoint.h"
#include "verify/verify_fixture.h"

namespace blockscale {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace testing;  // NOLINT

std::vector<uint16_t> UpperHalves(const std::vector<float>& values) {
  std::vector<uint16_t> halves;
  for (const float value : values) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, 4);
    EXPECT_EQ(bits & 0xFFFF, 0u) << value << " is no BF16";
    halves.push_back(static_cast<uint16_t>(bits >> 16));
  }
  return halves;
}

TEST_F(VerifyTest, ScalesMayBeBf16AndHaveThreeNames) {
  for (const char* suffix : {".weight_scale_inv", ".weight_scale", ".scale"}) {
    WriteSource({{kName + suffix, "BF16", {2, 2}, Bf16Bytes(UpperHalves(kScales))}});
    EXPECT_GT(Good().relative_rmse, 0.001);
    WriteSource({{kName + suffix, "F16", {2, 2}, std::string(8, '\1')}});
    EXPECT_THAT(Failures(), HasSubstr("is F16, not F32 or BF16"));
  }
}

TEST_F(VerifyTest, OneScaleForTheWholeMatrix) {
  Set(good_, Convert({.grid = std::vector<float>(4, 0.003f)}));
  Write(good_);
  for (const std::vector<uint64_t>& shape : {std::vector<uint64_t>{}, {1}, {1, 1}}) {
    WriteSource({{kName + ".weight_scale", "F32", shape, FloatBytes({0.003f})}});
    EXPECT_GT(Good().relative_rmse, 0.001);
    WriteSource({{kName + ".weight_scale", "F32", shape, FloatBytes({0.00302f})}});
    EXPECT_THAT(Failures(), HasSubstr("elements differ"));
  }
}

TEST_F(VerifyTest, AScaleInAnotherShard) {
  Shards source = {{"m.safetensors", Kept()}};
  source["m.safetensors"].push_back({kName + ".weight", "F8_E4M3", {kRows, kColumns}, Codes()});
  source["a.safetensors"].push_back(
      {kName + ".weight_scale_inv", "F32", {2, 2}, FloatBytes(kScales)});
  WriteCheckpoint(folder_ / "source", source, Fp8Config());
  Good();
}

TEST_F(VerifyTest, ScalesThatAreMissingDoubleOrMisshapen) {
  const TestTensor scale = {kName + ".weight_scale_inv", "F32", {2, 2}, FloatBytes(kScales)};
  WriteSource({});
  EXPECT_THAT(Failures(), HasSubstr("o_proj.weight: has no scale in the source"));
  WriteSource({scale, {kName + ".scale", "F32", {2, 2}, FloatBytes(kScales)}});
  EXPECT_THAT(Failures(), HasSubstr("o_proj.weight: has two scales in the source"));
  WriteSource({{scale.name, "F32", {1, 4}, scale.bytes}});
  EXPECT_THAT(Failures(), HasSubstr("where blocks of 128x128 need [2, 2]"));
}

TEST_F(VerifyTest, ATransposedGridOfScales) {
  Set(good_, Convert({.grid = {kScales[0], kScales[2], kScales[1], kScales[3]}}));
  Write(good_);
  EXPECT_THAT(Failures(), AllOf(HasSubstr("elements differ"), HasSubstr("row 0, column")));
}

TEST_F(VerifyTest, AnInfiniteValueInTheSource) {
  std::vector<float> scales = kScales;
  scales[3] = std::numeric_limits<float>::infinity();
  WriteSource({{kName + ".weight_scale_inv", "F32", {2, 2}, FloatBytes(scales)}});
  EXPECT_THAT(Failures(), AllOf(HasSubstr("of the source are not finite (the first: row 128, "
                                          "column 128"),
                                HasSubstr("times the scale inf")));
  EXPECT_TRUE(std::isfinite(Verify().matrices[0].relative_rmse));
}

TEST_F(VerifyTest, TheWiderRangeHoldsAndItsClippedCodesAreCounted) {
  const Converted wide = Convert({.steps = 127.5f});
  Set(good_, wide);
  Write(good_);
  const MatrixQuality quality = Good();
  // Every row holds code 448 somewhere; where it comes with a plus, 127.5 was cut to 127.
  uint64_t clipped = 0, lowest = 0;
  const std::string codes = Codes();
  for (size_t row = 0; row < kRows; ++row)
    for (size_t column = 0; column < kColumns; ++column) {
      const size_t i = row * kColumns + column;
      const double value =
          Value(static_cast<uint8_t>(codes[i])) * kScales[row / 128 * 2 + column / 128];
      clipped += value / wide.scales[row] > 127.25;
      lowest += static_cast<int8_t>(wide.codes[i]) == -128;
    }
  ASSERT_GT(clipped, 0u);
  ASSERT_GT(lowest, 0u);
  EXPECT_EQ(quality.clipped, clipped);
  EXPECT_LE(quality.max_half_steps, kClippedBound);
}

TEST_F(VerifyTest, ALowestCodeWhereTheRangeIsSymmetric) {
  const std::string text = FailuresOf([](Converted& c) {
    const size_t at = c.codes.find(static_cast<char>(-127));
    ASSERT_NE(at, std::string::npos);
    c.codes[at] = static_cast<char>(-128);
  });
  EXPECT_THAT(text, AllOf(HasSubstr(".weight: 1 elements differ"), HasSubstr("code -128 times")));
}

TEST_F(VerifyTest, OnlyClippedCodesHaveTheWiderLimit) {
  // 1.2e-5 half steps too far: inside the limit of a clipped code, outside that of any other.
  const double beyond = 1.2e-5;
  ASSERT_LT(1 + beyond, kClippedBound);
  ASSERT_GT(1 + beyond, kHalfStepBound);
  // One element that is 1.0, and a scale that puts it `beyond` past half a step from `code`.
  std::string codes(kRows * kColumns, '\0');
  codes[0] = 0x38;  // 1.0
  WriteSource({{kName + ".weight_scale_inv", "F32", {2, 2}, FloatBytes({1, 1, 1, 1})}}, codes);
  const auto failures = [&](int code, double half_step) {
    Converted converted = Convert({.codes = codes});
    converted.codes[0] = static_cast<char>(code);
    converted.scales[0] = static_cast<float>(1.0 / (code + half_step * (0.5 + beyond / 2)));
    Set(good_, converted);
    Write(good_);
    return Verify().failures;
  };
  EXPECT_EQ(failures(127, 1).size(), 0u);   // 127.5 of the wider range
  EXPECT_EQ(failures(127, -1).size(), 1u);  // 126.5: an ordinary code
  EXPECT_EQ(failures(126, 1).size(), 1u);
  // A scale that does not fit the row is told of too.
  ASSERT_EQ(failures(100, -1).size(), 2u);
  EXPECT_NE(failures(100, -1)[0].message.find("do not fit their rows"), std::string::npos);
}

TEST_F(VerifyTest, CodeAndWeightsThatTheSourceHasNotAreToldOf) {
  for (const char* name : {"modeling_more.py", "pytorch_model.bin", "m.safetensors.partial"}) {
    Write(good_);
    WriteFile(folder_.path() / "out" / name, "x");
    EXPECT_THAT(Failures(), AllOf(HasSubstr(name), HasSubstr("no file of that name")));
  }
  Write(good_);
  WriteFile(folder_ / "out/notes.json", "{}");  // a report, perhaps
  EXPECT_TRUE(Verify().failures.empty());
}

TEST_F(VerifyTest, TheLowestCodeCanBeClippedToo) {
  std::string codes(kRows * kColumns, '\0');
  codes[0] = static_cast<char>(0xB8);  // -1.0
  WriteSource({{kName + ".weight_scale_inv", "F32", {2, 2}, FloatBytes({1, 1, 1, 1})}}, codes);
  for (const auto& [steps, clipped] : {std::pair(128.3f, 1u), std::pair(128.0f, 0u)}) {
    Converted converted = Convert({.codes = codes});
    converted.codes[0] = static_cast<char>(-128);
    converted.scales[0] = 1 / steps;
    Set(good_, converted);
    Write(good_);
    EXPECT_EQ(Good().clipped, clipped) << steps;
  }
}

TEST_F(VerifyTest, ZeroRowsAreCountedAndHold) {
  std::string codes = Codes();
  for (size_t column = 0; column < kColumns; ++column) {
    codes[5 * kColumns + column] = '\0';
    codes[129 * kColumns + column] = column % 2 != 0 ? '\x80' : '\0';  // minus zero is zero
  }
  WriteSource({{kName + ".weight_scale_inv", "F32", {2, 2}, FloatBytes(kScales)}}, codes);
  Set(good_, Convert({.codes = codes}));
  Write(good_);
  EXPECT_EQ(Good().zero_rows, 2u);
  const std::string nothing(kRows * kColumns, '\0');
  WriteSource({{kName + ".weight_scale_inv", "F32", {2, 2}, FloatBytes(kScales)}}, nothing);
  Set(good_, Convert({.codes = nothing}));
  Write(good_);
  const MatrixQuality quality = Good();
  EXPECT_EQ(quality.zero_rows, kRows);
  EXPECT_EQ(quality.relative_rmse, 0);
  EXPECT_TRUE(std::isinf(quality.sqnr_db));
}

TEST_F(VerifyTest, ShardsThatAreMissingOrBrokenDoNotHold) {
  const std::string shard = folder_ / "out/m.safetensors";
  const std::string bytes = ReadFile(shard);
  WriteFile(shard, bytes.substr(0, bytes.size() - 1));
  EXPECT_THAT(Failures(), HasSubstr("m.safetensors: "));
  std::filesystem::remove(shard);
  EXPECT_THAT(Failures(),
              AllOf(HasSubstr("m.safetensors: is missing, but the index names it"),
                    HasSubstr("o_proj.weight: is missing"), HasSubstr("lm_head.weight: is missing"),
                    Not(HasSubstr("lies in the folder"))));
}

TEST_F(VerifyTest, AnEntryOfTheIndexWithoutTensor) {
  const std::string index = folder_ / "out/model.safetensors.index.json";
  std::string text = ReadFile(index);
  const std::string entry = "\"lm_head.weight\": \"m.safetensors\"";
  ASSERT_NE(text.find(entry), std::string::npos);
  WriteFile(index, text.insert(text.find(entry), "\"ghost.weight\": \"m.safetensors\", "));
  EXPECT_THAT(Failures(),
              HasSubstr("index.json: places tensor 'ghost.weight' in m.safetensors, which does"));
}

TEST_F(VerifyTest, ASecondGroupInTheConfig) {
  std::string config = Int8Config();
  const std::string group = "\"config_groups\": {";
  config.insert(config.find(group) + group.size(), R"("group_1": {"targets": ["Linear"]}, )");
  Write(good_, config);
  EXPECT_THAT(Failures(), HasSubstr("has 2 groups, limit 1"));
}

TEST_F(VerifyTest, ReadErrorsAreErrorsWhereverTheyHappen) {
  FaultyFileSystem files(PosixFileSystem());
  const VerifyOptions options = {.source = folder_ / "source", .converted = folder_ / "out"};
  ASSERT_TRUE(VerifyCheckpointOn(files, options).ok());
  const int64_t reads = files.reads();
  ASSERT_GT(reads, 10);
  for (int64_t nth = 1; nth <= reads; ++nth) {
    files.Arm(FaultyFileSystem::Fault::kReadEio, nth);
    EXPECT_FALSE(VerifyCheckpointOn(files, options).ok()) << "read " << nth << " of " << reads;
  }
}

TEST_F(VerifyTest, AShardThatIsNoFileIsAnError) {
  std::filesystem::remove(folder_ / "out/m.safetensors");
  std::filesystem::create_directory(folder_ / "out/m.safetensors");
  EXPECT_FALSE(VerifyCheckpoint({.source = folder_ / "source", .converted = folder_ / "out"}).ok());
}

// Many small matrices.
class VerifyMany : public ::testing::Test {
 protected:
  static constexpr int kCount = 20;
  VerifyMany() {
    Shards source, converted;
    for (int i = 0; i < kCount; ++i) {
      const std::string name = "m" + std::to_string(i % 10) + std::to_string(i / 10);
      source["m.safetensors"].push_back({name + ".weight", "F8_E4M3", {1, 2}, "\x38\x30"});
      source["m.safetensors"].push_back({name + ".scale", "F32", {}, FloatBytes({1})});
      converted["m.safetensors"].push_back({name + ".weight", "I8", {1, 2}, "\x7f\x40"});
      converted["m.safetensors"].push_back(
          {name + ".weight_scale", "F32", {1, 1}, FloatBytes({1 / 127.0f})});
    }
    WriteCheckpoint(folder_ / "source", source, Fp8Config());
    WriteShards(folder_ / "out", converted, Int8Config());
  }
  Result<VerifyReport> Run(VerifyOptions options) {
    options.source = folder_ / "source";
    options.converted = folder_ / "out";
    return VerifyCheckpoint(options);
  }
  std::vector<std::string> Names(VerifyOptions options) {
    std::vector<std::string> names;
    const auto report = Run(std::move(options));
    EXPECT_TRUE(report.ok()) << report.status().message();
    if (!report.ok()) return names;
    EXPECT_EQ(report->matrices_total, kCount);
    for (const MatrixQuality& matrix : report->matrices) names.push_back(matrix.name);
    return names;
  }
  TempFolder folder_;
};

TEST_F(VerifyMany, SamplesAreSpreadFromTheFirstToTheLast) {
  const std::vector<std::string> all = Names({});
  ASSERT_EQ(all.size(), kCount);
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
  EXPECT_THAT(Names({.sample = 3}), ::testing::ElementsAre(all[0], all[9], all[19]));
  EXPECT_THAT(Names({.sample = 1}), ::testing::ElementsAre(all[0]));
  EXPECT_EQ(Names({.sample = 19}).back(), all.back());
  EXPECT_EQ(Names({.sample = kCount}), all);
  EXPECT_EQ(Names({.sample = 1000}), all);
}

TEST_F(VerifyMany, MatchPicksByName) {
  EXPECT_THAT(Names({.match = "^m3"}), ::testing::ElementsAre("m30.weight", "m31.weight"));
  EXPECT_THAT(Names({.sample = 1, .match = "m.1"}), ::testing::ElementsAre("m01.weight"));
  EXPECT_EQ(Run({.match = "(("}).status().code(), StatusCode::kInvalidInput);
  EXPECT_THAT(Run({.match = "nothing"}).status().message(), HasSubstr("matches no FP8 matrix"));
}

TEST_F(VerifyMany, AMatchThatIsMissingIsAFailureAndNoError) {
  const std::string index = folder_ / "out/model.safetensors.index.json";
  std::string text = ReadFile(index);
  const size_t at = text.find("\"m30.weight\"");
  ASSERT_NE(at, std::string::npos);
  WriteFile(index, text.erase(at, text.find('"', text.find("m.safetensors", at)) + 2 - at));
  const auto report = Run({.match = "m30"});
  ASSERT_TRUE(report.ok()) << report.status().message();
  ASSERT_FALSE(report->failures.empty());
  EXPECT_TRUE(std::any_of(report->failures.begin(), report->failures.end(),
                          [](const VerifyFailure& f) { return f.object == "m30.weight"; }));
}

TEST_F(VerifyMany, ThreadsChangeNothingAndProgressCountsEveryMatrix) {
  const auto one = Run({.threads = 1});
  ASSERT_TRUE(one.ok());
  for (const unsigned threads : {2u, 5u}) {
    uint64_t calls = 0, last = 0;
    const auto many = Run({.threads = threads, .progress = [&](uint64_t done, uint64_t total) {
                             EXPECT_EQ(total, kCount);
                             EXPECT_EQ(done, ++calls);
                             last = done;
                           }});
    ASSERT_TRUE(many.ok());
    EXPECT_EQ(last, kCount);
    ASSERT_EQ(many->matrices.size(), one->matrices.size());
    for (size_t i = 0; i < one->matrices.size(); ++i) {
      EXPECT_EQ(many->matrices[i].name, one->matrices[i].name);
      EXPECT_EQ(many->matrices[i].relative_rmse, one->matrices[i].relative_rmse);
    }
  }
}

}  // namespace
}  // namespace blockscale
