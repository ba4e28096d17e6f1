#include "checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temp_folder.h"
#include "support/tensor_file.h"

namespace blockscale {
namespace {

using testing::FloatBytes;
using testing::Fp8Config;
using ::testing::HasSubstr;
using testing::TempFolder;
using testing::TestTensor;
using testing::WriteCheckpoint;
using testing::WriteFile;

std::map<std::string, std::vector<TestTensor>> TwoShards() {
  return {{"model-0.safetensors", {{"a", "F32", {2}, FloatBytes({1, 2})}, {"b", "U8", {3}, "xyz"}}},
          {"model-1.safetensors", {{"c", "F32", {1}, FloatBytes({3})}}}};
}

TEST(Checkpoint, OpensFindsAndReads) {
  TempFolder folder;
  WriteCheckpoint(folder.path(), TwoShards(), Fp8Config());
  const auto checkpoint = Checkpoint::Open(PosixFileSystem(), folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->shards().size(), 2u);
  EXPECT_EQ(checkpoint->tensors().size(), 3u);
  EXPECT_EQ(checkpoint->data_bytes(), 15u);
  const TensorRef b = checkpoint->Find("b");
  ASSERT_TRUE(b);
  EXPECT_EQ(b.shard->name, "model-0.safetensors");
  std::array<std::byte, 2> bytes;
  ASSERT_TRUE(checkpoint->Read(b, 1, bytes).ok());
  EXPECT_EQ(static_cast<char>(bytes[0]), 'y');
  EXPECT_EQ(static_cast<char>(bytes[1]), 'z');
  EXPECT_FALSE(checkpoint->Find("d"));
  EXPECT_FALSE(checkpoint->ReadAll(b, 2).ok());
  EXPECT_EQ(checkpoint->ReadAll(b, 3)->size(), 3u);
}

TEST(Checkpoint, StaysValidWhenMoved) {
  TempFolder folder;
  WriteCheckpoint(folder.path(), TwoShards(), Fp8Config());
  auto opened = Checkpoint::Open(PosixFileSystem(), folder.path());
  ASSERT_TRUE(opened.ok());
  const Checkpoint moved = std::move(*opened);
  EXPECT_EQ(moved.Find("c").info->name, "c");
}

TEST(Checkpoint, TakesASingleFileWithoutIndex) {
  TempFolder folder;
  WriteFile(folder / "model.safetensors", testing::TensorFile({{"t", "U8", {1}, "x"}}));
  WriteFile(folder / "config.json", "{}");
  const auto checkpoint = Checkpoint::Open(PosixFileSystem(), folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_TRUE(checkpoint->Find("t"));
  EXPECT_TRUE(checkpoint->index_text().empty());
}

TEST(Checkpoint, TheIndexDecidesBetweenCopies) {
  TempFolder folder;
  auto shards = TwoShards();
  WriteCheckpoint(folder.path(), shards, Fp8Config());
  // Shard 1 holds a stale copy of "b" that the index does not name.
  shards["model-1.safetensors"].push_back({"b", "U8", {3}, "old"});
  WriteFile(folder / "model-1.safetensors", testing::TensorFile(shards["model-1.safetensors"]));
  const auto checkpoint = Checkpoint::Open(PosixFileSystem(), folder.path());
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_EQ(checkpoint->Find("b").shard->name, "model-0.safetensors");
  EXPECT_EQ(checkpoint->tensors().size(), 3u);
}

TEST(Checkpoint, FollowsLinksOfAHubCache) {
  TempFolder folder;
  WriteCheckpoint(folder.path() / "blobs", TwoShards(), Fp8Config());
  std::filesystem::create_directories(folder.path() / "middle");
  std::filesystem::create_directories(folder.path() / "snapshot");
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "blobs")) {
    const auto name = entry.path().filename();
    std::filesystem::create_symlink("../blobs" / name, folder.path() / "middle" / name);
    std::filesystem::create_symlink("../middle" / name, folder.path() / "snapshot" / name);
  }
  const auto checkpoint = Checkpoint::Open(PosixFileSystem(), folder / "snapshot");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->tensors().size(), 3u);
}

TEST(Checkpoint, NamesWhatIsMissing) {
  TempFolder folder;
  const auto open = [&] {
    return Checkpoint::Open(PosixFileSystem(), folder.path()).status().message();
  };
  EXPECT_THAT(open(), HasSubstr("config.json"));
  WriteFile(folder / "config.json", "{}");
  EXPECT_THAT(open(), HasSubstr("neither"));
  WriteCheckpoint(folder.path(), TwoShards(), Fp8Config());
  std::filesystem::remove(folder / "model-1.safetensors");
  EXPECT_THAT(open(), HasSubstr("model-1.safetensors: No such file"));
  WriteFile(folder / "model-1.safetensors", testing::TensorFile({{"other", "U8", {1}, "x"}}));
  EXPECT_THAT(open(),
              HasSubstr("places tensor 'c' in model-1.safetensors, which does not hold it"));
  EXPECT_THAT(Checkpoint::Open(PosixFileSystem(), folder / "config.json").status().message(),
              HasSubstr("not a folder"));
}

TEST(Checkpoint, ToleratesWhenAskedTo) {
  TempFolder folder;
  WriteCheckpoint(folder.path(), TwoShards(), Fp8Config());
  WriteFile(folder / "model-0.safetensors", "garbage");
  WriteFile(folder / "model-1.safetensors", testing::TensorFile({}));
  std::vector<Finding> findings;
  const auto checkpoint = Checkpoint::Open(PosixFileSystem(), folder.path(), &findings);
  ASSERT_TRUE(checkpoint.ok());
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].kind, "unreadable-shard");
  EXPECT_EQ(findings[1].kind, "missing-tensor");
}

TEST(Checkpoint, AFileThatShrinksIsAnErrorNotASignal) {
  TempFolder folder;
  WriteCheckpoint(folder.path(), TwoShards(), Fp8Config());
  const auto checkpoint = Checkpoint::Open(PosixFileSystem(), folder.path());
  ASSERT_TRUE(checkpoint.ok());
  std::filesystem::resize_file(folder / "model-1.safetensors", 10);
  const auto data = checkpoint->ReadAll(checkpoint->Find("c"), 100);
  ASSERT_FALSE(data.ok());
  EXPECT_THAT(data.status().message(), HasSubstr("truncated"));
}

}  // namespace
}  // namespace blockscale
