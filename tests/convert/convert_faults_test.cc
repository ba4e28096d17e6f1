// The disk fails, fills up or the machine stops at every single operation in turn: nothing
// half-written has a final name, and a continued run ends with the very bytes of an undisturbed
// one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "convert/convert_checkpoint.h"
#include "sample_checkpoint.h"
#include "support/faulty_file_system.h"
#include "support/temp_folder.h"

namespace blockscale {
namespace {

using ::testing::HasSubstr;
using namespace testing;  // NOLINT
using Fault = FaultyFileSystem::Fault;

class FaultTest : public ::testing::Test {
 protected:
  FaultTest() {
    WriteSample(folder_ / "source");
    EXPECT_TRUE(ConvertCheckpointOn(files_, Options("reference")).ok());
    operations_ = files_.writes();
    reads_ = files_.reads();
    reference_ = FolderBytes(folder_ / "reference");
  }
  ConvertOptions Options(const std::string& output) {
    ConvertOptions options = OptionsFor(folder_ / "source", folder_ / output);
    options.chunk_rows = 64;  // several chunks a matrix, so that there is a middle to stop in
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

TEST_F(FaultTest, CrashAtEveryWriteThenResume) {
  ASSERT_GT(operations_, 60);
  for (int64_t nth = 1; nth <= operations_; ++nth) {
    std::filesystem::remove_all(folder_ / "out");
    files_.Arm(Fault::kCrash, nth);
    ASSERT_FALSE(ConvertCheckpointOn(files_, Options("out")).ok()) << nth;
    if (!std::filesystem::exists(folder_ / "out")) continue;
    ExpectNothingHalfWritten(nth);
    ContinueAndCompare(nth);
  }
}

TEST_F(FaultTest, DiskFullAtEveryWriteThenResume) {
  for (int64_t nth = 2; nth <= operations_; nth += 3) {
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

TEST_F(FaultTest, OneFailingWriteOrReadEndsTheRunAndNothingIsLost) {
  for (const Fault fault : {Fault::kWriteEio, Fault::kReadEio}) {
    const int64_t count = fault == Fault::kReadEio ? reads_ : operations_;
    for (int64_t nth = 1; nth <= count; nth += 5) {
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

TEST_F(FaultTest, FreeSpaceIsCheckedBeforeTheFirstByte) {
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

}  // namespace
}  // namespace blockscale
