#include "checkpoint/file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "support/temp_folder.h"

namespace blockscale {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempFolder;
using testing::WriteFile;

FileSystem& Files() { return PosixFileSystem(); }

TEST(PosixFiles, ReadsAtOffsetsAndNamesAShortFile) {
  TempFolder folder;
  WriteFile(folder / "f", "0123456789");
  const auto file = Files().OpenForRead(folder / "f");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->facts().size, 10u);
  std::array<std::byte, 4> bytes;
  ASSERT_TRUE((*file)->ReadAt(3, bytes).ok());
  EXPECT_EQ(static_cast<char>(bytes[0]), '3');
  const Status beyond = (*file)->ReadAt(8, bytes);
  EXPECT_EQ(beyond.code(), StatusCode::kInvalidInput);
  EXPECT_THAT(beyond.message(), HasSubstr("ends at byte 10"));
}

TEST(PosixFiles, OpensOnlyRegularFiles) {
  TempFolder folder;
  EXPECT_FALSE(Files().OpenForRead(folder.path()).ok());
  EXPECT_THAT(Files().OpenForRead(folder / "none").status().message(), HasSubstr("No such file"));
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(Files().OpenForRead(folder / "fifo").status().message(),
              HasSubstr("not a regular file"));
}

TEST(PosixFiles, ListsSortedAndLocksOnce) {
  TempFolder folder;
  WriteFile(folder / "b", "");
  WriteFile(folder / "a", "");
  EXPECT_THAT(*Files().List(folder.path()), ElementsAre("a", "b"));
  EXPECT_FALSE(Files().List(folder / "none").ok());
  auto first = Files().Lock(folder.path());
  ASSERT_TRUE(first.ok());
  const auto second = Files().Lock(folder.path());
  EXPECT_EQ(second.status().code(), StatusCode::kRefused);
  EXPECT_THAT(second.status().message(), HasSubstr("another blockscale process"));
  first = Status(StatusCode::kCancelled, "let go");
  EXPECT_TRUE(Files().Lock(folder.path()).ok());
}

TEST(PosixFiles, SparseFilesReadAsZeros) {
  TempFolder folder;
  const auto file = Files().Create(folder / "f");
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->Truncate(uint64_t{1} << 33).ok());
  std::array<std::byte, 2> bytes = {std::byte{1}, std::byte{1}};
  ASSERT_TRUE((*file)->ReadAt(uint64_t{1} << 32, bytes).ok());
  EXPECT_EQ(bytes[0], std::byte{0});
}

TEST(ReadTextFile, HasALimit) {
  TempFolder folder;
  WriteFile(folder / "f", "12345");
  EXPECT_EQ(*ReadTextFile(Files(), folder / "f", 5), "12345");
  EXPECT_THAT(ReadTextFile(Files(), folder / "f", 4).status().message(),
              HasSubstr("5 bytes, more than the limit of 4"));
}

}  // namespace
}  // namespace blockscale
