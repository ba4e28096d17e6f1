#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>

#include "blockscale/convert.h"
#include "checkpoint/file_system.h"
#include "sample_checkpoint.h"
#include "support/temp_folder.h"

namespace blockscale {
namespace {

using ::testing::HasSubstr;
using namespace testing;  // NOLINT

class ResumeTest : public ::testing::Test {
 protected:
  ResumeTest() { WriteSample(folder_ / "source"); }
  ConvertOptions Options(bool resume) {
    ConvertOptions options = OptionsFor(folder_ / "source", folder_ / "out");
    options.resume = resume;
    return options;
  }
  // Stops as soon as the first shard is journalled.
  void StopAfterFirstShard() {
    std::atomic<bool> stop = false;
    ConvertOptions options = Options(false);
    options.stop = &stop;
    options.threads = 1;
    options.chunk_rows = 1;
    options.progress = [&](const ConvertProgress& progress) {
      if (!progress.finished_shard.empty()) stop = true;
    };
    const auto summary = ConvertCheckpoint(options);
    // The second shard may have been quicker than the stop.
    if (!summary.ok()) {
      EXPECT_EQ(summary.status().code(), StatusCode::kCancelled);
    }
  }
  std::string ErrorOf(ConvertOptions options, StatusCode code = StatusCode::kRefused) {
    const auto summary = ConvertCheckpoint(options);
    EXPECT_FALSE(summary.ok());
    EXPECT_EQ(summary.status().code(), code);
    return summary.status().message();
  }
  TempFolder folder_;
  const std::string shard0_ = "out/model-00000-of-00009.safetensors";
};

TEST_F(ResumeTest, OfNothingStartsAfresh) { EXPECT_TRUE(ConvertCheckpoint(Options(true)).ok()); }

TEST_F(ResumeTest, StopsWhenAskedAndContinues) {
  StopAfterFirstShard();
  ASSERT_TRUE(std::filesystem::exists(folder_ / shard0_));
  const auto summary = ConvertCheckpoint(Options(true));
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  EXPECT_GE(summary->shards_reused, 1u);
  EXPECT_EQ(summary->matrices.size(), 4u);
  ConvertOptions undisturbed = OptionsFor(folder_ / "source", folder_ / "whole");
  ASSERT_TRUE(ConvertCheckpoint(undisturbed).ok());
  EXPECT_EQ(FolderBytes(folder_ / "out"), FolderBytes(folder_ / "whole"));
}

TEST_F(ResumeTest, AStopThatIsThereAtTheStartWritesNoShard) {
  std::atomic<bool> stop = true;
  ConvertOptions options = Options(false);
  options.stop = &stop;
  EXPECT_THAT(ErrorOf(options, StatusCode::kCancelled), HasSubstr("--resume"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / shard0_));
}

TEST_F(ResumeTest, OfAFinishedRunChangesNothing) {
  ASSERT_TRUE(ConvertCheckpoint(Options(false)).ok());
  const auto before = FolderBytes(folder_ / "out");
  for (const ResumeCheck check : {ResumeCheck::kFull, ResumeCheck::kHeader}) {
    ConvertOptions options = Options(true);
    options.resume_check = check;
    const auto summary = ConvertCheckpoint(options);
    ASSERT_TRUE(summary.ok());
    EXPECT_EQ(summary->shards_reused, 2u);
    EXPECT_EQ(FolderBytes(folder_ / "out"), before);
  }
}

TEST_F(ResumeTest, FullCheckFindsAFlippedByteAndHeaderCheckDoesNot) {
  ASSERT_TRUE(ConvertCheckpoint(Options(false)).ok());
  const auto before = FolderBytes(folder_ / "out");
  std::string damaged = ReadFile(folder_ / shard0_);
  damaged.back() ^= 1;
  WriteFile(folder_ / shard0_, damaged);
  ConvertOptions options = Options(true);
  options.resume_check = ResumeCheck::kHeader;
  EXPECT_EQ(ConvertCheckpoint(options)->shards_reused, 2u);
  EXPECT_EQ(ReadFile(folder_ / shard0_), damaged);
  options.resume_check = ResumeCheck::kFull;
  EXPECT_EQ(ConvertCheckpoint(options)->shards_reused, 1u);
  EXPECT_EQ(FolderBytes(folder_ / "out"), before);
}

TEST_F(ResumeTest, HeaderCheckFindsAWrongHeaderAndAWrongSize) {
  ASSERT_TRUE(ConvertCheckpoint(Options(false)).ok());
  const auto before = FolderBytes(folder_ / "out");
  const std::string good = ReadFile(folder_ / shard0_);
  std::string renamed = good;
  renamed[renamed.find("q_proj")] = 'k';
  for (const std::string& bad : {good.substr(0, good.size() - 1), good + "x", renamed}) {
    WriteFile(folder_ / shard0_, bad);
    ConvertOptions options = Options(true);
    options.resume_check = ResumeCheck::kHeader;
    EXPECT_EQ(ConvertCheckpoint(options)->shards_reused, 1u);
    EXPECT_EQ(FolderBytes(folder_ / "out"), before);
  }
  std::filesystem::remove(folder_ / shard0_);
  EXPECT_EQ(ConvertCheckpoint(Options(true))->shards_reused, 1u);
  EXPECT_EQ(FolderBytes(folder_ / "out"), before);
}

TEST_F(ResumeTest, WithoutItAUsedFolderIsRefused) {
  StopAfterFirstShard();
  EXPECT_THAT(ErrorOf(Options(false)), HasSubstr("--resume"));
}

TEST_F(ResumeTest, RefusesAChangedSourceAndSaysWhat) {
  StopAfterFirstShard();
  const std::string shard = folder_ / "source/model-00001-of-00009.safetensors";
  const auto time = std::filesystem::last_write_time(shard);
  std::filesystem::last_write_time(shard, time + std::chrono::seconds(1));
  EXPECT_THAT(ErrorOf(Options(true)),
              HasSubstr("model-00001-of-00009.safetensors has another time"));
  std::filesystem::last_write_time(shard, time);

  const std::string config = ReadFile(folder_ / "source/config.json");
  WriteFile(folder_ / "source/config.json", config + " ");
  EXPECT_THAT(ErrorOf(Options(true)), HasSubstr("config.json has changed"));
  WriteFile(folder_ / "source/config.json", config);

  const std::string index_path = folder_ / "source/model.safetensors.index.json";
  const std::string index = ReadFile(index_path);
  WriteFile(index_path, index + "\n");
  EXPECT_THAT(ErrorOf(Options(true)), HasSubstr("index has changed"));
  WriteFile(index_path, index);

  std::filesystem::copy(folder_ / "source", folder_ / "copy");
  ConvertOptions elsewhere = Options(true);
  elsewhere.source = folder_ / "copy";
  EXPECT_THAT(ErrorOf(elsewhere), HasSubstr("the source was"));

  ConvertOptions other_range = Options(true);
  other_range.range = Int8Range::k128;
  EXPECT_THAT(ErrorOf(other_range), HasSubstr("--int8-range 127"));
  EXPECT_TRUE(ConvertCheckpoint(Options(true)).ok());
}

TEST_F(ResumeTest, RefusesAFolderThatIsNotItsOwnAndADamagedState) {
  WriteFile(folder_ / "out/notes.txt", "mine");
  EXPECT_THAT(ErrorOf(Options(true)), HasSubstr("no conversion_state.json"));
  WriteFile(folder_ / "out/conversion_state.json", "{\"format\":\"blockscale-conversion-state\"");
  EXPECT_THAT(ErrorOf(Options(true), StatusCode::kInvalidInput), HasSubstr("not JSON"));
  WriteFile(folder_ / "out/conversion_state.json", "{\"format\":\"blockscale-conversion-state\"}");
  EXPECT_THAT(ErrorOf(Options(true), StatusCode::kInvalidInput), HasSubstr("damaged"));
  WriteFile(folder_ / "out/conversion_state.json", "{\"format\":\"other\",\"version\":1}");
  EXPECT_THAT(ErrorOf(Options(true), StatusCode::kInvalidInput), HasSubstr("another version"));
  EXPECT_EQ(ReadFile(folder_ / "out/notes.txt"), "mine");
}

TEST_F(ResumeTest, LinksThatLeadInACircleEndSomewhere) {
  std::filesystem::create_directories(folder_ / "out/a");
  for (const char* name : {"x", "y", "z"})
    std::filesystem::create_directory_symlink("../a", folder_.path() / "out/a" / name);
  EXPECT_THAT(ErrorOf(Options(true)), HasSubstr("no conversion_state.json"));
}

TEST_F(ResumeTest, TheSecondOfTwoConvertersIsRefused) {
  std::filesystem::create_directories(folder_ / "out");
  const auto lock = PosixFileSystem().Lock(folder_ / "out");
  ASSERT_TRUE(lock.ok());
  EXPECT_THAT(ErrorOf(Options(false)), HasSubstr("another blockscale process"));
}

TEST_F(ResumeTest, ASourceThatChangesMeanwhileIsNoticed) {
  ConvertOptions options = Options(false);
  options.progress = [&](const ConvertProgress& progress) {
    if (progress.finished_shard.empty()) return;
    const std::string shard = folder_ / "source/model-00000-of-00009.safetensors";
    std::filesystem::last_write_time(
        shard, std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  };
  EXPECT_THAT(ErrorOf(options, StatusCode::kInvalidInput),
              HasSubstr("changed while it was converted"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out/config.json"));
}

}  // namespace
}  // namespace blockscale
