#include "checkpoint/fp8_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/temp_folder.h"
#include "support/tensor_file.h"

namespace blockscale {
namespace {

using testing::Bf16Bytes;
using testing::FloatBytes;
using ::testing::HasSubstr;
using testing::TempFolder;
using testing::TestTensor;

// One checkpoint with a weight of 200 x 300 and whatever else a case wants.
class Fp8MatrixTest : public ::testing::Test {
 protected:
  Result<Checkpoint> Open(std::vector<TestTensor> tensors,
                          const std::string& config = testing::Fp8Config()) {
    testing::WriteCheckpoint(folder_.path(), {{"m.safetensors", std::move(tensors)}}, config);
    return Checkpoint::Open(PosixFileSystem(), folder_.path());
  }
  std::string ErrorOf(std::vector<TestTensor> tensors,
                      const std::string& config = testing::Fp8Config()) {
    const auto checkpoint = Open(std::move(tensors), config);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const auto matrices = FindFp8Matrices(*checkpoint);
    EXPECT_FALSE(matrices.ok());
    return matrices.status().message();
  }
  static TestTensor Weight(std::vector<uint64_t> shape = {200, 300}) {
    uint64_t size = 1;
    for (const uint64_t side : shape) size *= side;
    return {"x.weight", "F8_E4M3", std::move(shape), std::string(size, '\x38')};
  }
  static TestTensor Scale(const std::string& name, std::vector<uint64_t> shape,
                          const std::string& dtype = "F32") {
    uint64_t count = 1;
    for (const uint64_t side : shape) count *= side;
    return {name, dtype, std::move(shape),
            dtype == "F32" ? FloatBytes(std::vector<float>(count, 0.5f))
                           : Bf16Bytes(std::vector<uint16_t>(count, 0x3F00))};
  }
  TempFolder folder_;
};

TEST_F(Fp8MatrixTest, FindsEveryNameAndTypeOfScale) {
  for (const char* suffix : {"weight_scale_inv", "weight_scale", "scale"}) {
    for (const char* dtype : {"F32", "BF16"}) {
      const auto checkpoint = Open({Weight(), Scale(std::string("x.") + suffix, {2, 3}, dtype)});
      ASSERT_TRUE(checkpoint.ok());
      const auto matrices = FindFp8Matrices(*checkpoint);
      ASSERT_TRUE(matrices.ok()) << matrices.status().message();
      ASSERT_EQ(matrices->size(), 1u);
      const Fp8Matrix& matrix = matrices->front();
      EXPECT_EQ(matrix.rows, 200u);
      EXPECT_EQ(matrix.grid_rows, 2u);
      EXPECT_EQ(matrix.grid_columns, 3u);
      const auto scales = ReadScales(*checkpoint, matrix);
      ASSERT_TRUE(scales.ok());
      EXPECT_EQ(*scales, std::vector<float>(6, 0.5f));
    }
  }
}

TEST_F(Fp8MatrixTest, OneNumberScalesTheWholeMatrix) {
  for (const std::vector<uint64_t>& shape :
       {std::vector<uint64_t>{}, std::vector<uint64_t>{1}, std::vector<uint64_t>{1, 1}}) {
    const auto checkpoint = Open({Weight(), Scale("x.weight_scale_inv", shape)});
    const auto matrices = FindFp8Matrices(*checkpoint);
    ASSERT_TRUE(matrices.ok()) << matrices.status().message();
    EXPECT_EQ(matrices->front().block.rows, 200u);
    EXPECT_EQ(matrices->front().block.columns, 300u);
  }
}

TEST_F(Fp8MatrixTest, TheConfigGivesTheBlockSize) {
  std::string config = testing::Fp8Config();
  config.replace(config.find("[128, 128]"), 10, "[100, 50]");
  const auto checkpoint = Open({Weight(), Scale("x.weight_scale_inv", {2, 6})}, config);
  const auto matrices = FindFp8Matrices(*checkpoint);
  ASSERT_TRUE(matrices.ok()) << matrices.status().message();
  EXPECT_EQ(matrices->front().block.columns, 50u);
}

TEST_F(Fp8MatrixTest, RefusesWithTensorAndReason) {
  EXPECT_THAT(ErrorOf({Weight()}), HasSubstr("'x.weight': is F8_E4M3 and has no scale"));
  EXPECT_THAT(ErrorOf({Weight(), Scale("x.scale", {2, 3}), Scale("x.weight_scale_inv", {2, 3})}),
              HasSubstr("two scales"));
  EXPECT_THAT(
      ErrorOf({Weight(), Scale("x.weight_scale_inv", {3, 2})}),
      HasSubstr("scales are [3, 2], but a [200, 300] matrix in blocks of 128x128 needs [2, 3]"));
  EXPECT_THAT(ErrorOf({Weight(), Scale("x.weight_scale_inv", {6})}), HasSubstr("needs [2, 3]"));
  EXPECT_THAT(ErrorOf({Weight({2, 3, 4}), Scale("x.weight_scale_inv", {1})}),
              HasSubstr("two dimensions"));
  EXPECT_THAT(ErrorOf({Weight({0, 4}), Scale("x.weight_scale_inv", {1})}),
              HasSubstr("holds nothing"));
  EXPECT_THAT(ErrorOf({{"odd.name", "F8_E4M3", {1, 1}, "x"}}), HasSubstr("named '*.weight'"));
  EXPECT_THAT(ErrorOf({Weight(), {"x.weight_scale_inv", "F8_E5M2", {2, 3}, "xxxxxx"}}),
              HasSubstr("scales are F8_E5M2"));
  EXPECT_THAT(ErrorOf({Weight(), Scale("x.weight_scale_inv", {2, 3})},
                      R"({"quantization_config":{"quant_method":"fp8"}})"),
              HasSubstr("no weight_block_size"));
  EXPECT_THAT(ErrorOf({Weight(), Scale("x.weight_scale_inv", {2, 3})}, "{}"),
              HasSubstr("no weight_block_size"));
}

TEST_F(Fp8MatrixTest, RefusesScalesThatAreNoScales) {
  for (const float bad : {NAN, INFINITY, -1.0f, -0x1p-140f}) {
    std::vector<float> scales(6, 1.0f);
    scales[4] = bad;
    const auto checkpoint =
        Open({Weight(), {"x.weight_scale_inv", "F32", {2, 3}, FloatBytes(scales)}});
    const auto matrices = FindFp8Matrices(*checkpoint);
    ASSERT_TRUE(matrices.ok());
    const auto read = ReadScales(*checkpoint, matrices->front());
    ASSERT_FALSE(read.ok()) << bad;
    EXPECT_THAT(read.status().message(), HasSubstr("scale [1, 1] is"));
  }
}

}  // namespace
}  // namespace blockscale
