#include "base/status.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "blockscale/version.h"

namespace blockscale {
namespace {

TEST(Status, IsOkByDefaultAndCarriesCodeAndMessage) {
  EXPECT_TRUE(Status().ok());
  const Status status = InvalidInput("{}: {} is {}", "file", "field", 7);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kInvalidInput);
  EXPECT_EQ(status.message(), "file: field is 7");
}

TEST(Status, DiskFullHasACodeOfItsOwn) {
  EXPECT_EQ(IoError("write", "/x", ENOSPC).code(), StatusCode::kDiskFull);
  EXPECT_EQ(IoError("write", "/x", EDQUOT).code(), StatusCode::kDiskFull);
  const Status io = IoError("write", "/x", EIO);
  EXPECT_EQ(io.code(), StatusCode::kIo);
  EXPECT_EQ(io.message(), "cannot write /x: Input/output error");
}

TEST(Status, MessagesAreOneLineOfPlainText) {
  EXPECT_EQ(InvalidInput("tensor '{}'", "a\nb\x1b[31m\x7f").message(),
            "tensor 'a\\x0ab\\x1b[31m\\x7f'");
  EXPECT_EQ(Refused("{}", "\t").message(), "\\x09");
  EXPECT_EQ(IoError("open", "a\rb", ENOENT).message(),
            "cannot open a\\x0db: No such file or directory");
  EXPECT_EQ(InvalidInput("{}", "ü ok").message(), "ü ok");
}

Result<int> Half(int number) {
  if (number % 2 != 0) return InvalidInput("{} is odd", number);
  return number / 2;
}

Result<int> Quarter(int number) {
  BLOCKSCALE_ASSIGN_OR_RETURN(const int half, Half(number));
  BLOCKSCALE_RETURN_IF_ERROR(Half(half).status());
  return Half(half);
}

TEST(Result, HandsErrorsOn) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_TRUE(Quarter(12).status().ok());
  EXPECT_EQ(Quarter(7).status().message(), "7 is odd");
  EXPECT_EQ(Quarter(6).status().message(), "3 is odd");
}

TEST(CheckDeathTest, NamesConditionAndValues) {
  const int rows = 3;
  EXPECT_DEATH(BLOCKSCALE_CHECK(rows == 4, "rows {}", rows), "rows == 4: rows 3");
}

TEST(Version, HasThreeNumbers) {
  int major = -1, minor = -1, patch = -1;
  ASSERT_EQ(std::sscanf(Version(), "%d.%d.%d", &major, &minor, &patch), 3);
  EXPECT_GE(major + minor + patch, 1);
}

}  // namespace
}  // namespace blockscale
