#include "checkpoint/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/faulty_file_system.h"
#include "support/temp_folder.h"

namespace blockscale {
namespace {

using testing::FaultyFileSystem;
using ::testing::HasSubstr;
using testing::ReadFile;
using testing::TempFolder;
using testing::WriteFile;

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(OutputFile, TheNameAppearsOnlyWithCommit) {
  TempFolder folder;
  auto file = OutputFile::Create(PosixFileSystem(), folder.path(), "out");
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->WriteAt(3, Bytes("def")).ok());
  ASSERT_TRUE((*file)->WriteAt(0, Bytes("abc")).ok());
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  EXPECT_EQ(*(*file)->Digest(6), Xxh3Hex(Bytes("abcdef")));
  ASSERT_TRUE((*file)->Commit().ok());
  EXPECT_EQ(ReadFile(folder / "out"), "abcdef");
  EXPECT_FALSE(std::filesystem::exists(folder / "out.partial"));
}

TEST(OutputFile, WithoutCommitNothingStays) {
  TempFolder folder;
  { auto file = OutputFile::Create(PosixFileSystem(), folder.path(), "sub/out"); }
  EXPECT_TRUE(std::filesystem::exists(folder / "sub"));
  EXPECT_TRUE(std::filesystem::is_empty(folder / "sub"));
}

TEST(OutputFile, NeverWritesThroughALink) {
  TempFolder folder;
  WriteFile(folder / "victim", "precious");
  std::filesystem::create_symlink("victim", folder / "out.partial");
  EXPECT_FALSE(WriteFileAtomically(PosixFileSystem(), folder.path(), "out", "x").ok());
  std::filesystem::remove(folder / "out.partial");
  std::filesystem::create_symlink("victim", folder / "out");
  ASSERT_TRUE(WriteFileAtomically(PosixFileSystem(), folder.path(), "out", "x").ok());
  EXPECT_EQ(ReadFile(folder / "victim"), "precious");
  EXPECT_EQ(ReadFile(folder / "out"), "x");
}

// Whatever single operation fails, the final name holds the old text or the new one, whole.
TEST(OutputFile, EveryFaultLeavesOldOrNew) {
  TempFolder folder;
  FaultyFileSystem files(PosixFileSystem());
  files.Arm(FaultyFileSystem::Fault::kNone, 0);
  ASSERT_TRUE(WriteFileAtomically(files, folder.path(), "out", "new text").ok());
  const int64_t operations = files.writes();
  ASSERT_GE(operations, 5);  // create, write, sync, rename, sync folder
  for (const auto fault : {FaultyFileSystem::Fault::kCrash, FaultyFileSystem::Fault::kDiskFull,
                           FaultyFileSystem::Fault::kWriteEio}) {
    for (int64_t nth = 1; nth <= operations; ++nth) {
      WriteFile(folder / "out", "old");
      files.Arm(fault, nth);
      EXPECT_FALSE(WriteFileAtomically(files, folder.path(), "out", "new text").ok()) << nth;
      const std::string text = ReadFile(folder / "out");
      EXPECT_TRUE(text == "old" || text == "new text") << text;
    }
  }
}

// The digests of xxhsum -H2 of an empty input and of "abc".
TEST(Xxh3, IsTheCanonicalForm) {
  EXPECT_EQ(Xxh3Hex({}), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(Xxh3Hex(Bytes("abc")), "06b05ab6733a618578af5f94892f3950");
}

TEST(Xxh3, OfAFileEqualsThatOfItsBytes) {
  TempFolder folder;
  std::string text(3'000'001, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i >> 7);
  WriteFile(folder / "f", text);
  const auto file = PosixFileSystem().OpenForRead(folder / "f");
  EXPECT_EQ(*Xxh3OfFile(**file), Xxh3Hex(Bytes(text)));
  EXPECT_EQ(Xxh3OfFile(**file, [] { return true; }).status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace blockscale
