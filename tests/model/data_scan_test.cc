#include "model/data_scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "model/matrix_schemes.h"
#include "support/faulty_file_system.h"
#include "support/temp_folder.h"
#include "support/tensor_file.h"

namespace blockscale {
namespace {

using testing::Bf16Bytes;
using testing::FloatBytes;
using ::testing::HasSubstr;
using testing::TestTensor;

constexpr uint64_t kColumns = 700'000;  // a row and a half to a chunk

std::string Text(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) text += finding.kind + ": " + finding.message + "\n";
  return text;
}

class DataScanTest : public ::testing::Test {
 protected:
  // Scans "x.weight" [4, 700000] in blocks of 2 x 300000, scales as given.
  std::string ScanWide(const std::string& codes, const std::vector<float>& scales) {
    Open({{"x.weight", "F8_E4M3", {4, kColumns}, codes},
          {"x.weight_scale_inv", "F32", {2, 3}, FloatBytes(scales)}},
         R"({"quantization_config":{"quant_method":"fp8","weight_block_size":[2,300000]}})");
    const auto matrix = MatchFp8Matrix(*checkpoint_, checkpoint_->Find("x.weight"));
    EXPECT_TRUE(matrix.ok()) << matrix.status().message();
    return matrix.ok() ? Text(ScanMatrix(*checkpoint_, *matrix)) : "";
  }
  std::string ScanScaleBytes(const std::string& dtype, uint64_t count, const std::string& bytes) {
    Open({{"s", dtype, {count, 1}, bytes}}, "{}");
    return Text(ScanScales(*checkpoint_, checkpoint_->Find("s")));
  }
  void Open(const std::vector<TestTensor>& tensors, const std::string& config) {
    testing::WriteCheckpoint(folder_.path(), {{"m.safetensors", tensors}}, config);
    auto opened = Checkpoint::Open(files_, folder_.path().string());
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    checkpoint_ = std::make_unique<Checkpoint>(std::move(*opened));
  }

  testing::TempFolder folder_;
  testing::FaultyFileSystem files_{PosixFileSystem()};
  std::unique_ptr<Checkpoint> checkpoint_;
};

TEST_F(DataScanTest, PlacesAreRightInEveryChunk) {
  std::string codes(4 * kColumns, '8');
  EXPECT_EQ(ScanWide(codes, {1, 2, 3, 4, 5, 6}), "");
  codes[3 * kColumns + 699'999] = '\x7F';  // the very last
  EXPECT_THAT(ScanWide(codes, {1, 2, 3, 4, 5, 6}),
              HasSubstr("nan-codes: m.safetensors: tensor 'x.weight' holds 1 NaN codes, the first "
                        "at [3, 699999]"));
  codes[kColumns + 348'576] = '\xFF';  // the first byte of the second chunk
  codes[kColumns + 348'577] = '\x7E';  // 448 is a number
  EXPECT_THAT(ScanWide(codes, {1, 2, 3, 4, 5, 6}),
              HasSubstr("holds 2 NaN codes, the first at [1, 348576]"));
}

TEST_F(DataScanTest, AZeroScaleNeedsAZeroBlock) {
  std::string codes(4 * kColumns, '8');
  for (uint64_t row = 2; row < 4; ++row)
    for (uint64_t column = 300'000; column < 600'000; ++column)
      codes[row * kColumns + column] = column % 2 == 0 ? '\0' : '\x80';  // +0 and -0
  const std::vector<float> scales = {1, 2, 3, 4, 0, 6};
  EXPECT_THAT(ScanWide(codes, scales),
              HasSubstr("1 scales of 'x.weight_scale_inv' are 0, over codes that are 0 too"));
  for (const uint64_t place : {2 * kColumns + 300'000, 3 * kColumns + 599'999}) {
    std::string wrong = codes;
    wrong[place] = 1;
    EXPECT_THAT(ScanWide(wrong, scales), HasSubstr("scale: m.safetensors: tensor 'x.weight': scale "
                                                   "[1, 1] of 'x.weight_scale_inv' is 0 over"));
  }
  EXPECT_THAT(ScanWide(codes, {1, 2, 3, 4, 0, 0}), HasSubstr("scale [1, 2]"));
}

// The second chunk begins in the middle of the zero block, whose right neighbour is not zero.
TEST_F(DataScanTest, AChunkMayBeginInsideAZeroBlock) {
  std::string codes(4 * kColumns, '8');
  for (uint64_t row = 0; row < 2; ++row)
    std::fill_n(codes.begin() + static_cast<ptrdiff_t>(row * kColumns + 300'000), 300'000, '\0');
  EXPECT_THAT(ScanWide(codes, {1, 0, 3, 4, 5, 6}), HasSubstr("over codes that are 0 too"));
}

TEST_F(DataScanTest, BadScalesDoNotHideNanCodes) {
  std::string codes(4 * kColumns, '8');
  codes[0] = '\x7F';
  const std::string text = ScanWide(codes, {1, INFINITY, 3, 4, 5, 6});
  EXPECT_THAT(text, HasSubstr("scale [0, 1] is inf"));
  EXPECT_THAT(text, HasSubstr("nan-codes"));
}

TEST_F(DataScanTest, CodesOfAnyShape) {
  std::string codes(24, '8');
  codes[13] = '\xFF';
  Open({{"x", "F8_E4M3", {2, 3, 4}, codes}}, "{}");
  EXPECT_THAT(Text(ScanCodes(*checkpoint_, checkpoint_->Find("x"))), HasSubstr("at [1, 0, 1]"));
  Open({{"x", "F8_E4M3", {0, 4}, ""}}, "{}");
  EXPECT_EQ(Text(ScanCodes(*checkpoint_, checkpoint_->Find("x"))), "");
}

TEST_F(DataScanTest, ScalesMustBePositiveAndFinite) {
  EXPECT_EQ(ScanScaleBytes("F32", 3, FloatBytes({1, 1e-40f, 3e38f})), "");
  EXPECT_THAT(ScanScaleBytes("F32", 4, FloatBytes({1, NAN, -1, 2})),
              HasSubstr("scale: m.safetensors: tensor 's' holds 2 scales that are not positive and "
                        "finite, the first at [1, 0] is NaN"));
  EXPECT_THAT(ScanScaleBytes("F32", 1, FloatBytes({-1e-40f})), HasSubstr("is negative"));
  EXPECT_THAT(ScanScaleBytes("F32", 1, FloatBytes({-0.0f})), HasSubstr("is zero"));
  EXPECT_THAT(ScanScaleBytes("F32", 1, FloatBytes({-INFINITY})), HasSubstr("is infinite"));
  EXPECT_EQ(ScanScaleBytes("BF16", 2, Bf16Bytes({0x3F80, 0x0001})), "");
  EXPECT_THAT(ScanScaleBytes("BF16", 2, Bf16Bytes({0x3F80, 0x7F80})), HasSubstr("is infinite"));
  EXPECT_THAT(ScanScaleBytes("BF16", 1, Bf16Bytes({0xFFC0})), HasSubstr("is NaN"));
  EXPECT_THAT(ScanScaleBytes("BF16", 1, Bf16Bytes({0x7F81})), HasSubstr("is NaN"));
  EXPECT_EQ(ScanScaleBytes("F16", 2, Bf16Bytes({0x3C00, 0x7BFF})), "");
  EXPECT_THAT(ScanScaleBytes("F16", 1, Bf16Bytes({0x7C00})), HasSubstr("is infinite"));
  EXPECT_THAT(ScanScaleBytes("F16", 1, Bf16Bytes({0x8001})), HasSubstr("is negative"));
  EXPECT_EQ(ScanScaleBytes("U8", 1, std::string(1, '\0')), "");  // not looked into
}

TEST_F(DataScanTest, AReadThatFailsIsAFinding) {
  Open({{"x", "F8_E4M3", {2, 2}, "8888"}, {"s", "F32", {1}, FloatBytes({1})}}, "{}");
  for (const auto scan : {ScanCodes, ScanScales}) {
    files_.Arm(testing::FaultyFileSystem::Fault::kReadEio, 1);
    const TensorRef tensor = checkpoint_->Find(scan == ScanCodes ? "x" : "s");
    EXPECT_THAT(Text(scan(*checkpoint_, tensor)), HasSubstr("unreadable-shard: "));
    EXPECT_EQ(Text(scan(*checkpoint_, tensor)), "");  // the next read works again
  }
}

}  // namespace
}  // namespace blockscale
