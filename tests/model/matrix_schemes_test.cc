#include "model/matrix_schemes.h"

#include <gtest/gtest.h>

#include "support/temp_folder.h"
#include "support/tensor_file.h"

namespace blockscale {
namespace {

using testing::FloatBytes;
using testing::Fp8Config;
using testing::TestTensor;

// The scheme of "x.weight" (or "x.weight_packed"), which its scales must share, and what was found:
// numbers only, the tensors that it refers to are gone with their checkpoint.
struct Found {
  std::string scheme;
  MatrixSchemes schemes;
};

Found SchemesOf(const std::vector<TestTensor>& tensors, const std::string& config = Fp8Config()) {
  const testing::TempFolder folder;
  testing::WriteCheckpoint(folder.path(), {{"model.safetensors", tensors}}, config);
  const auto checkpoint = Checkpoint::Open(PosixFileSystem(), folder.path().string());
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  Found found{.schemes = FindMatrixSchemes(*checkpoint)};
  for (const TensorRef& tensor : checkpoint->tensors()) {
    const auto scheme = found.schemes.scheme_of.find(tensor.info);
    const std::string text =
        scheme == found.schemes.scheme_of.end() ? PlainScheme(tensor.info->dtype) : scheme->second;
    if (tensor.info->name.starts_with("x.weight") && found.scheme.empty()) found.scheme = text;
    if (tensor.info->name.starts_with("x.")) {
      EXPECT_EQ(text, found.scheme) << tensor.info->name;
    }
  }
  return found;
}

TestTensor Tensor(const std::string& name, const std::string& dtype, std::vector<uint64_t> shape,
                  uint64_t element_bytes) {
  uint64_t bytes = element_bytes;
  for (const uint64_t side : shape) bytes *= side;
  return {name, dtype, std::move(shape), std::string(bytes, '\1')};
}

TestTensor Fp8(std::vector<uint64_t> shape) { return Tensor("x.weight", "F8_E4M3", shape, 1); }
TestTensor Scale(std::vector<uint64_t> shape) {
  return Tensor("x.weight_scale_inv", "F32", std::move(shape), 4);
}

TEST(MatrixSchemes, Fp8ByTheShapeOfTheScales) {
  EXPECT_EQ(SchemesOf({Fp8({130, 140}), Scale({2, 2})}).scheme, "fp8-block 128x128");
  EXPECT_EQ(SchemesOf({Fp8({130, 140}), Scale({})}).scheme, "fp8-tensor");
  EXPECT_EQ(SchemesOf({Fp8({130, 140}), Scale({1, 1})}).scheme, "fp8-tensor");
  EXPECT_EQ(SchemesOf({Fp8({130, 140}), Scale({130, 1})}).scheme, "fp8-channel");
  EXPECT_EQ(SchemesOf({Fp8({130, 140}), Scale({130})}).scheme, "fp8-channel");
  // A grid of one block is a grid, where the config has blocks and one covers the matrix.
  EXPECT_EQ(SchemesOf({Fp8({100, 90}), Scale({1, 1})}).scheme, "fp8-block 128x128");
  EXPECT_EQ(SchemesOf({Fp8({100, 90}), Scale({1, 1})}, "{}").scheme, "fp8-tensor");
}

TEST(MatrixSchemes, AChannelIsABlockOfOneRow) {
  const Found found = SchemesOf({Fp8({3, 5}), Tensor("x.weight_scale", "F32", {3, 1}, 4)}, "{}");
  ASSERT_EQ(found.schemes.fp8.size(), 1u);
  EXPECT_EQ(found.schemes.fp8[0].block.rows, 1u);
  EXPECT_EQ(found.schemes.fp8[0].block.columns, 5u);
  EXPECT_EQ(found.schemes.fp8[0].grid_rows, 3u);
  EXPECT_TRUE(found.schemes.findings.empty());
}

TEST(MatrixSchemes, Fp8WithoutUsableScalesIsFoundAndKept) {
  for (const std::vector<TestTensor>& tensors : {std::vector<TestTensor>{Fp8({4, 4})},
                                                 {Fp8({130, 140}), Tensor("y", "F32", {2, 2}, 4)},
                                                 {Tensor("x.weight", "F8_E4M3", {2, 3, 4}, 1)}}) {
    const Found found = SchemesOf(tensors);
    EXPECT_EQ(found.scheme, "fp8 without usable scales");
    EXPECT_EQ(found.schemes.fp8_unscaled.size(), 1u);
    EXPECT_EQ(found.schemes.fp8_matrices(), 1u);
    ASSERT_EQ(found.schemes.findings.size(), 1u);
    EXPECT_EQ(found.schemes.findings[0].kind, "scale");
  }
}

TEST(MatrixSchemes, Int8) {
  const auto int8 = [](std::vector<TestTensor> more) {
    more.insert(more.begin(), Tensor("x.weight", "I8", {4, 6}, 1));
    return SchemesOf(more, "{}");
  };
  for (const std::vector<uint64_t>& shape : {std::vector<uint64_t>{4, 1}, {4}}) {
    const Found found = int8({Tensor("x.weight_scale", "F32", shape, 4)});
    EXPECT_EQ(found.scheme, "int8-channel");
    EXPECT_EQ(found.schemes.int8_scales.size(), 1u);
    EXPECT_TRUE(found.schemes.findings.empty());
  }
  EXPECT_EQ(int8({Tensor("x.weight_scale", "F32", {1}, 4)}).scheme, "int8-tensor");
  const Found none = int8({});
  EXPECT_EQ(none.scheme, "int8 without usable scales");
  ASSERT_EQ(none.schemes.findings.size(), 1u);
  EXPECT_NE(none.schemes.findings[0].message.find("has no scale"), std::string::npos);
  const Found odd = int8({Tensor("x.weight_scale", "F32", {2, 3}, 4)});
  ASSERT_EQ(odd.schemes.findings.size(), 1u);
  EXPECT_NE(odd.schemes.findings[0].message.find("are [2, 3]"), std::string::npos);
  EXPECT_EQ(odd.schemes.int8_matrices, 1u);
  EXPECT_TRUE(odd.schemes.int8_scales.empty());
}

TEST(MatrixSchemes, OtherPairsAreNamedAsTheyAre) {
  const auto packed = [](const std::string& weight, const std::string& scale) {
    const auto bytes = [](const std::string& dtype) { return dtype.ends_with("32") ? 4u : 1u; };
    return SchemesOf({Tensor("x.weight_packed", weight, {2, 8}, bytes(weight)),
                      Tensor("x.weight_scale", scale, {2, 1}, bytes(scale))},
                     "{}");
  };
  EXPECT_EQ(packed("U8", "U8").scheme, "mxfp4");
  EXPECT_EQ(packed("U8", "U8").schemes.dialects.at("compressed-tensors"), 1u);
  EXPECT_EQ(packed("U8", "U8").schemes.other_scales.size(), 1u);
  EXPECT_EQ(packed("I32", "F32").scheme, "i32 with f32 scales");
  const Found nvfp4 = packed("U8", "F8_E4M3");  // the F8_E4M3 tensor is a scale, not a matrix
  EXPECT_EQ(nvfp4.scheme, "u8 with f8_e4m3 scales");
  EXPECT_EQ(nvfp4.schemes.fp8_matrices(), 0u);
  EXPECT_EQ(nvfp4.schemes.other_matrices, 1u);
  ASSERT_EQ(nvfp4.schemes.findings.size(), 1u);
  EXPECT_NE(nvfp4.schemes.findings[0].message.find("x.weight_global_scale is not in the index"),
            std::string::npos);
  const Found whole = SchemesOf(
      {Tensor("x.weight_packed", "U8", {2, 8}, 1), Tensor("x.weight_scale", "F8_E4M3", {2, 1}, 1),
       Tensor("x.weight_global_scale", "F32", {1}, 4)},
      "{}");
  EXPECT_EQ(whole.scheme, "nvfp4");
  EXPECT_TRUE(whole.schemes.findings.empty());
  EXPECT_EQ(whole.schemes.other_scales.size(), 2u);
  const Found e5m2 = SchemesOf({Tensor("x.weight", "F8_E5M2", {2, 8}, 1)}, "{}");
  EXPECT_EQ(e5m2.scheme, "f8_e5m2");
  ASSERT_EQ(e5m2.schemes.findings.size(), 1u);
  EXPECT_NE(e5m2.schemes.findings[0].message.find("F8_E5M2"), std::string::npos);
}

}  // namespace
}  // namespace blockscale
