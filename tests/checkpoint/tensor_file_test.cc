#include "checkpoint/tensor_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/faulty_file_system.h"
#include "support/temp_folder.h"
#include "support/tensor_file.h"

namespace blockscale {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;

const std::vector<float> kValues = {1, 2, 3, 4, 5, 6};
const std::vector<int32_t> kIds = {7, -1};

std::vector<NamedTensor> Tensors() {
  return {{"values", DType::kF32, {2, 3}, std::as_bytes(std::span(kValues))},
          {"ids", DType::kI32, {2}, std::as_bytes(std::span(kIds))}};
}

TEST(TensorFile, WhatIsWrittenIsReadByName) {
  const TempFolder folder;
  const std::string path = folder / "a.safetensors";
  ASSERT_TRUE(WriteTensorFile(PosixFileSystem(), path, Tensors()).ok());
  const auto file = TensorFile::Open(PosixFileSystem(), path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->Metadata("format"), "pt");
  EXPECT_EQ(file->Metadata("kernel"), "");
  ASSERT_NE(file->Find("values"), nullptr);
  EXPECT_EQ(file->Find("values")->shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(*file->Read<float>(*file->Find("values")), kValues);
  EXPECT_EQ(*file->Read<int32_t>(*file->Find("ids")), kIds);
  EXPECT_EQ(file->Find("other"), nullptr);
}

TEST(TensorFile, NoFileAndNoTensorFileAreErrors) {
  const TempFolder folder;
  EXPECT_THAT(TensorFile::Open(PosixFileSystem(), folder / "none").status().message(),
              HasSubstr("none"));
  testing::WriteFile(folder / "text", "not a safetensors file at all");
  EXPECT_FALSE(TensorFile::Open(PosixFileSystem(), folder / "text").ok());
}

TEST(TensorFile, EveryFaultLeavesNothingOrAll) {
  using testing::FaultyFileSystem;
  FaultyFileSystem files(PosixFileSystem());
  int64_t operations = 0;
  {
    const TempFolder folder;
    files.Arm(FaultyFileSystem::Fault::kNone, 0);
    ASSERT_TRUE(WriteTensorFile(files, folder / "a", Tensors()).ok());
    operations = files.writes();
  }
  ASSERT_GE(operations, 7);  // create, header, two tensors, sync, rename, sync folder
  for (int64_t nth = 1; nth <= operations; ++nth) {
    const TempFolder folder;
    files.Arm(FaultyFileSystem::Fault::kCrash, nth);
    EXPECT_FALSE(WriteTensorFile(files, folder / "a", Tensors()).ok()) << nth;
    if (!std::filesystem::exists(folder / "a")) continue;
    EXPECT_TRUE(TensorFile::Open(PosixFileSystem(), folder / "a").ok()) << nth;
  }
}

}  // namespace
}  // namespace blockscale
