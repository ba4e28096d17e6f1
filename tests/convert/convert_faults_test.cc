// The disk fails, fills up or the machine stops at every single operation in turn: nothing
// half-written has a final name, and a continued run ends with the very bytes of an undisturbed
// one. Every scheme and every way to get there: recoded in place, in one spelling or another, cast
// exactly, and experts stacked from many matrices into one tensor.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "convert/convert_checkpoint.h"
#include "model/synth.h"
#include "sample_checkpoint.h"
#include "support/faulty_file_system.h"
#include "support/temp_folder.h"

namespace blockscale {
namespace {

using ::testing::HasSubstr;
using namespace testing;  // NOLINT
using Fault = FaultyFileSystem::Fault;

// Where a conversion starts (the sample, or a family's generated model) and where it goes.
struct FaultCase {
  std::string name, family, to, dialect;
};

void PrintTo(const FaultCase& of, std::ostream* out) { *out << of.name; }

class FaultTest : public ::testing::TestWithParam<FaultCase> {
 protected:
  FaultTest() {
    const FaultCase& of = GetParam();
    if (of.family.empty()) {
      WriteSample(folder_ / "source");
    } else {
      SynthOptions synth{.output = folder_ / "source"};
      synth.family = *ParseFamily(of.family);
      synth.size = {.layers = Kimi() ? 2u : 1u,
                    .experts = 2,
                    .hidden = 128,
                    .intermediate = 128,
                    .vocab = 32};
      EXPECT_TRUE(SynthesizeCheckpoint(PosixFileSystem(), synth).ok());
    }
    const auto reference = ConvertCheckpointOn(files_, Options("reference"));
    EXPECT_TRUE(reference.ok()) << reference.status().message();
    operations_ = files_.writes();
    reads_ = files_.reads();
    reference_ = FolderBytes(folder_ / "reference");
  }
  static bool Kimi() { return GetParam().family == "kimi-k3"; }  // its first layer has no experts
  // Faults that the sample meets at every `nth` operation are met now and then elsewhere.
  static int64_t Every(int64_t nth) { return GetParam().family.empty() ? nth : 4 * nth; }
  ConvertOptions Options(const std::string& output) {
    ConvertOptions options = OptionsFor(folder_ / "source", folder_ / output);
    options.chunk_rows = 64;  // several chunks a matrix, so that there is a middle to stop in
    if (!GetParam().to.empty()) {
      options.recipe = RecipeFor(GetParam().to);
      if (Kimi()) options.recipe.rules[0].match = "block_sparse_moe[.]experts";
      options.recipe.dialect = GetParam().dialect;
    }
    return options;
  }

  // No final name may stand for anything but the bytes of the undisturbed run.
  void ExpectNothingHalfWritten(int64_t nth) {
    for (const auto& [name, bytes] : FolderBytes(folder_ / "out")) {
      if (name.ends_with(".partial")) continue;
      ASSERT_TRUE(reference_.contains(name)) << name << " after operation " << nth;
      EXPECT_EQ(bytes == reference_.at(name), true) << name << " after operation " << nth;
    }
  }

  void ContinueAndCompare(int64_t nth) {
    ConvertOptions options = Options("out");
    options.resume = true;
    options.threads = nth % 2 == 0 ? 1 : 3;
    options.chunk_rows = nth % 3 == 0 ? 0 : 50;
    files_.Arm(Fault::kNone, 0);
    const auto summary = ConvertCheckpointOn(files_, options);
    ASSERT_TRUE(summary.ok()) << summary.status().message() << " after operation " << nth;
    EXPECT_EQ(FolderBytes(folder_ / "out") == reference_, true) << "after operation " << nth;
  }

  TempFolder folder_;
  FaultyFileSystem files_{PosixFileSystem()};
  int64_t operations_ = 0, reads_ = 0;
  std::map<std::string, std::string> reference_;
};

TEST_P(FaultTest, CrashAtEveryWriteThenResume) {
  ASSERT_GT(operations_, 20);
  for (int64_t nth = 1; nth <= operations_; ++nth) {
    std::filesystem::remove_all(folder_ / "out");
    files_.Arm(Fault::kCrash, nth);
    ASSERT_FALSE(ConvertCheckpointOn(files_, Options("out")).ok()) << nth;
    if (!std::filesystem::exists(folder_ / "out")) continue;
    ExpectNothingHalfWritten(nth);
    ContinueAndCompare(nth);
  }
}

TEST_P(FaultTest, DiskFullAtEveryWriteThenResume) {
  for (int64_t nth = 2; nth <= operations_; nth += Every(3)) {
    std::filesystem::remove_all(folder_ / "out");
    files_.Arm(Fault::kDiskFull, nth);
    const auto summary = ConvertCheckpointOn(files_, Options("out"));
    ASSERT_FALSE(summary.ok()) << nth;
    EXPECT_EQ(summary.status().code(), StatusCode::kDiskFull) << nth;
    EXPECT_THAT(summary.status().message(), HasSubstr("No space left"));
    ExpectNothingHalfWritten(nth);
    ContinueAndCompare(nth);
  }
}

TEST_P(FaultTest, OneFailingWriteOrReadEndsTheRunAndNothingIsLost) {
  for (const Fault fault : {Fault::kWriteEio, Fault::kReadEio}) {
    const int64_t count = fault == Fault::kReadEio ? reads_ : operations_;
    for (int64_t nth = 1; nth <= count; nth += Every(5)) {
      std::filesystem::remove_all(folder_ / "out");
      files_.Arm(fault, nth);
      const auto summary = ConvertCheckpointOn(files_, Options("out"));
      if (summary.ok()) continue;  // the failing write was one of removing a leftover
      EXPECT_THAT(summary.status().message(), HasSubstr("Input/output error")) << nth;
      if (!std::filesystem::exists(folder_ / "out")) continue;
      ExpectNothingHalfWritten(nth);
      ContinueAndCompare(nth);
    }
  }
}

TEST_P(FaultTest, FreeSpaceIsCheckedBeforeTheFirstByte) {
  files_.Arm(Fault::kNone, 0);
  files_.free_bytes = 1000;
  const auto summary = ConvertCheckpointOn(files_, Options("out"));
  ASSERT_FALSE(summary.ok());
  EXPECT_EQ(summary.status().code(), StatusCode::kDiskFull);
  EXPECT_THAT(summary.status().message(), HasSubstr("1000 are free"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
  const auto plan = PlanConversionOn(files_, Options("out"));
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE(plan->fits);
}

INSTANTIATE_TEST_SUITE_P(
    Every, FaultTest,
    ::testing::Values(FaultCase{"Int8", "", "", ""}, FaultCase{"Nvfp4", "minimax-m2", "nvfp4", ""},
                      FaultCase{"Nvfp4AsModelOpt", "minimax-m2", "nvfp4", "modelopt"},
                      FaultCase{"Mxfp4", "minimax-m2", "mxfp4", ""},
                      FaultCase{"Mxfp8", "minimax-m2", "mxfp8", ""},
                      FaultCase{"Int4", "minimax-m2", "int4-group", ""},
                      FaultCase{"Fp8Channel", "", "fp8-channel", ""},
                      FaultCase{"Bf16", "", "bf16", ""},
                      FaultCase{"Mxfp4CastToNvfp4", "kimi-k3", "nvfp4", ""},
                      FaultCase{"StackedIntoGptOss", "kimi-k3", "mxfp4", "gpt-oss"},
                      FaultCase{"GptOssTakenApart", "gpt-oss", "mxfp4", "compressed-tensors"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace blockscale
