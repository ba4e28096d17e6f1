#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "support/temp_folder.h"
#include "support/tensor_file.h"

namespace blockscale {
namespace {

using ::testing::HasSubstr;
using testing::RawTensorFile;
using testing::TempFolder;
using testing::TensorFile;
using testing::WriteFile;

Result<SafetensorsHeader> ReadBytes(const std::string& bytes) {
  static TempFolder folder;
  const std::string path = folder / "model.safetensors";
  WriteFile(path, bytes);
  const auto file = PosixFileSystem().OpenForRead(path);
  EXPECT_TRUE(file.ok());
  return ReadSafetensorsHeader(**file);
}

std::string Entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

TEST(Safetensors, ReadsWhatTheFormatAllows) {
  const auto header = ReadBytes(TensorFile({{"b", "F32", {2, 3}, std::string(24, 'x')},
                                            {"a", "F8_E4M3", {5}, std::string(5, 'y')},
                                            {"scalar", "BF16", {}, "zz"},
                                            {"empty", "I64", {4, 0, 2}, ""},
                                            {"f4", "F4", {2, 8}, std::string(8, 'w')}}));
  ASSERT_TRUE(header.ok()) << header.status().message();
  ASSERT_EQ(header->tensors.size(), 5u);
  EXPECT_EQ(header->tensors[0].name, "b");
  EXPECT_EQ(header->tensors[0].shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(header->tensors[1].begin, 24u);
  EXPECT_EQ(header->data_bytes(), 39u);
  EXPECT_FALSE(header->has_metadata);
}

TEST(Safetensors, AcceptsEmptyFilesMetadataAndWhitespace) {
  EXPECT_TRUE(ReadBytes(RawTensorFile("{}", "")).ok());
  EXPECT_TRUE(ReadBytes(RawTensorFile(" \n\t{}  \r\n ", "")).ok());
  const auto header = ReadBytes(RawTensorFile(R"({"__metadata__":{"format":"pt","a":""}})", ""));
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(header->metadata,
            (std::vector<std::pair<std::string, std::string>>{{"format", "pt"}, {"a", ""}}));
  EXPECT_TRUE(ReadBytes(RawTensorFile(R"({"__metadata__":{}})", "")).ok());
  EXPECT_TRUE(ReadBytes(RawTensorFile(R"({"__metadata__":null})", "")).ok());
}

TEST(Safetensors, IgnoresUnknownFieldsAsTheReferenceDoes) {
  const std::string json =
      R"({"t":{"dtype":"U8","extra":{"deep":[1,{"x":[]}]},"shape":[1],"more":null,"data_offsets":[0,1]}})";
  const auto header = ReadBytes(RawTensorFile(json, "x"));
  ASSERT_TRUE(header.ok()) << header.status().message();
  EXPECT_EQ(header->tensors.size(), 1u);
}

struct BadFile {
  std::string what;  // names the case
  std::string bytes;
  std::string error;  // part of the message
};

std::string OneTensor(const std::string& entry, const std::string& data) {
  return RawTensorFile(R"({"t":)" + entry + "}", data);
}

std::vector<BadFile> BadFiles() {
  std::string huge = RawTensorFile("{}", "");
  const uint64_t claim = kMaxHeaderBytes + 1;
  std::memcpy(huge.data(), &claim, 8);
  std::string all_ones = std::string(8, '\xFF') + "{}";
  std::string beyond = RawTensorFile("{}", "");
  beyond[0] = 100;
  const std::string nul = RawTensorFile(std::string("{}\0", 3), "");
  return {
      {"empty file", "", "too few"},
      {"seven bytes", "1234567", "too few"},
      {"header over the limit", huge, "more than the limit"},
      {"header length of 2^64-1", all_ones, "more than the limit"},
      {"header beyond the end", beyond, "truncated"},
      {"not JSON", RawTensorFile("{\"a\":", ""), "not JSON"},
      {"not UTF-8", RawTensorFile("{\"\xFF\":1}", ""), "not JSON"},
      {"NUL after the end", nul, "NUL byte"},
      {"byte order mark", RawTensorFile("\xEF\xBB\xBF{}", ""), "byte order mark"},
      {"two documents", RawTensorFile("{}{}", ""), "not JSON"},
      {"an array", RawTensorFile("[]", ""), "not an object"},
      {"a number", RawTensorFile("7", ""), "not an object"},
      {"tensor is a string", RawTensorFile(R"({"t":"x"})", ""), "tensor 't' is a string"},
      {"tensor is an array", RawTensorFile(R"({"t":[1]})", ""), "tensor 't' is an array"},
      {"no dtype", OneTensor(R"({"shape":[1],"data_offsets":[0,1]})", "x"), "has no dtype"},
      {"no shape", OneTensor(R"({"dtype":"U8","data_offsets":[0,1]})", "x"), "has no shape"},
      {"no offsets", OneTensor(R"({"dtype":"U8","shape":[1]})", "x"), "has no data_offsets"},
      {"unknown dtype", OneTensor(Entry("F8_E4M3FN", "[1]", "[0,1]"), "x"),
       "unknown dtype 'F8_E4M3FN'"},
      {"dtype is a number", OneTensor(R"({"dtype":8,"shape":[1],"data_offsets":[0,1]})", "x"),
       "dtype is a number"},
      {"negative side", OneTensor(Entry("U8", "[-1]", "[0,1]"), "x"), "holds -1"},
      {"fractional side", OneTensor(Entry("U8", "[1.0]", "[0,1]"), "x"), "holds 1.0"},
      {"side over 2^64", OneTensor(Entry("U8", "[18446744073709551616]", "[0,1]"), "x"),
       "not a whole number"},
      {"nested shape", OneTensor(Entry("U8", "[[1]]", "[0,1]"), "x"), "nested array"},
      {"shape is a string", OneTensor(Entry("U8", "\"1\"", "[0,1]"), "x"), "shape is a string"},
      {"one offset", OneTensor(Entry("U8", "[1]", "[0]"), "x"), "has 1 numbers"},
      {"three offsets", OneTensor(Entry("U8", "[1]", "[0,1,2]"), "x"), "has 3 numbers"},
      {"offsets reversed", OneTensor(Entry("U8", "[1]", "[1,0]"), "x"), "before it begins"},
      {"hole at the start", OneTensor(Entry("U8", "[1]", "[1,2]"), "xx"), "a hole"},
      {"hole between",
       RawTensorFile(R"({"a":)" + Entry("U8", "[1]", "[0,1]") + R"(,"b":)" +
                         Entry("U8", "[1]", "[2,3]") + "}",
                     "xxx"),
       "'b' begins at 2 where 1 was expected: the data has a hole"},
      {"overlap",
       RawTensorFile(R"({"a":)" + Entry("U8", "[2]", "[0,2]") + R"(,"b":)" +
                         Entry("U8", "[2]", "[1,3]") + "}",
                     "xxx"),
       "an overlap"},
      {"alias",
       RawTensorFile(R"({"a":)" + Entry("U8", "[2]", "[0,2]") + R"(,"b":)" +
                         Entry("U8", "[2]", "[0,2]") + "}",
                     "xx"),
       "an overlap"},
      {"size mismatch", OneTensor(Entry("F32", "[1]", "[0,3]"), "xxx"),
       "needs 4 bytes, but its data_offsets hold 3"},
      {"element overflow", OneTensor(Entry("U8", "[4294967296,4294967296]", "[0,1]"), "x"),
       "more bits than 2^64"},
      {"bit overflow", OneTensor(Entry("U64", "[288230376151711744]", "[0,1]"), "x"),
       "more bits than 2^64"},
      {"half a byte", OneTensor(Entry("F4", "[3]", "[0,1]"), "x"), "whole bytes"},
      {"name twice",
       RawTensorFile(R"({"t":)" + Entry("U8", "[1]", "[0,1]") + R"(,"t":)" +
                         Entry("U8", "[1]", "[0,1]") + "}",
                     "x"),
       "'t' stands twice"},
      {"field twice",
       OneTensor(R"({"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]})", "x"),
       "dtype stands twice"},
      {"metadata holds a number", RawTensorFile(R"({"__metadata__":{"a":1}})", ""),
       "__metadata__ 'a' is a number"},
      {"metadata is an array", RawTensorFile(R"({"__metadata__":[]})", ""),
       "__metadata__ is an array"},
      {"metadata holds null", RawTensorFile(R"({"__metadata__":{"a":null}})", ""), "not a string"},
      {"truncated data", OneTensor(Entry("U8", "[4]", "[0,4]"), "xxx"), "truncated"},
      {"trailing data", OneTensor(Entry("U8", "[2]", "[0,2]"), "xxx"),
       "1 bytes after the last tensor"},
      {"deep nesting",
       OneTensor(R"({"x":)" + std::string(5000, '[') + std::string(5000, ']') + "}", ""),
       "nested deeper"},
  };
}

TEST(Safetensors, RefusesEveryBrokenFileWithItsReason) {
  for (const BadFile& bad : BadFiles()) {
    const auto header = ReadBytes(bad.bytes);
    ASSERT_FALSE(header.ok()) << bad.what;
    EXPECT_EQ(header.status().code(), StatusCode::kInvalidInput) << bad.what;
    EXPECT_THAT(header.status().message(), HasSubstr(bad.error)) << bad.what;
    EXPECT_THAT(header.status().message(), HasSubstr("model.safetensors")) << bad.what;
  }
}

TEST(Safetensors, EveryPrefixOfAGoodFileIsRefused) {
  const std::string good =
      TensorFile({{"a", "F32", {2}, std::string(8, 'x')}, {"b", "U8", {3}, "abc"}});
  ASSERT_TRUE(ReadBytes(good).ok());
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(ReadBytes(good.substr(0, length)).ok()) << length;
}

// The bytes of the reference writer, put down by hand from its rules: dtype descending, then name;
// compact JSON; metadata first; padding with spaces to 8.
TEST(Safetensors, LaysOutAsTheReferenceWriterDoes) {
  SafetensorsHeader header;
  const auto bytes =
      LayOutSafetensors({{.name = "b.weight", .dtype = DType::kI8, .shape = {2, 3}},
                         {.name = "a.weight", .dtype = DType::kI8, .shape = {1, 1}},
                         {.name = "n", .dtype = DType::kBF16, .shape = {}},
                         {.name = "b.weight_scale", .dtype = DType::kF32, .shape = {2, 1}}},
                        &header);
  ASSERT_TRUE(bytes.ok());
  std::string expected = R"({"__metadata__":{"format":"pt"},)"
                         R"("b.weight_scale":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                         R"("n":{"dtype":"BF16","shape":[],"data_offsets":[8,10]},)"
                         R"("a.weight":{"dtype":"I8","shape":[1,1],"data_offsets":[10,11]},)"
                         R"("b.weight":{"dtype":"I8","shape":[2,3],"data_offsets":[11,17]}})";
  expected.resize((expected.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(bytes->substr(8), expected);
  uint64_t length = 0;
  std::memcpy(&length, bytes->data(), 8);
  EXPECT_EQ(length, expected.size());
  EXPECT_EQ(header.data_start, 8 + length);
  EXPECT_EQ(header.file_bytes(), 8 + length + 17);
}

TEST(Safetensors, WhatItLaysOutItReads) {
  SafetensorsHeader laid_out;
  const auto bytes = LayOutSafetensors(
      {{.name = "quote\"back\\slash\nü", .dtype = DType::kU8, .shape = {3}}}, &laid_out);
  ASSERT_TRUE(bytes.ok());
  const auto read = ReadBytes(*bytes + "abc");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->tensors[0].name, "quote\"back\\slash\nü");
  EXPECT_EQ(read->data_start % 8, 0u);
}

}  // namespace
}  // namespace blockscale
