#include "checkpoint/stored_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "checkpoint/stored_rows.h"
#include "numeric/block_quant.h"
#include "support/temp_folder.h"
#include "support/tensor_file.h"

namespace blockscale {
namespace {

using ::testing::AllOf;
using testing::Bf16Bytes;
using testing::FloatBytes;
using ::testing::HasSubstr;
using testing::TestTensor;

const std::string kInt4Config =
    R"({"quantization_config": {"quant_method": "compressed-tensors", "config_groups":
        {"group_0": {"weights": {"num_bits": 4, "group_size": 32}}}}})";

TestTensor Bytes(const std::string& name, const std::string& dtype, std::vector<uint64_t> shape,
                 uint64_t bytes, char fill = '\x12') {
  return {name, dtype, std::move(shape), std::string(bytes, fill)};
}

class StoredMatrixTest : public ::testing::Test {
 protected:
  Result<StoredMatrices> Find(const std::vector<TestTensor>& tensors,
                              const std::string& config = "{}") {
    testing::WriteCheckpoint(folder_.path(), {{"m.safetensors", tensors}}, config);
    auto opened = Checkpoint::Open(PosixFileSystem(), folder_.path());
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    checkpoint_ = std::make_unique<Checkpoint>(std::move(*opened));
    return FindStoredMatrices(*checkpoint_);
  }
  StoredMatrix One(const std::vector<TestTensor>& tensors, const std::string& config = "{}") {
    const auto found = Find(tensors, config);
    EXPECT_TRUE(found.ok()) << found.status().message();
    EXPECT_EQ(found.ok() ? found->matrices.size() : 0, 1u);
    return found.ok() && !found->matrices.empty() ? found->matrices[0] : StoredMatrix{};
  }
  std::string ErrorOf(const std::vector<TestTensor>& tensors, const std::string& config = "{}") {
    const auto found = Find(tensors, config);
    EXPECT_FALSE(found.ok());
    return found.ok() ? "" : found.status().message();
  }
  // All values of a matrix.
  std::vector<float> Values(const StoredMatrix& matrix) {
    const auto global = ReadGlobalScale(*checkpoint_, matrix);
    EXPECT_TRUE(global.ok());
    StoredRows rows;
    const Status status = ReadStoredRows(*checkpoint_, matrix, *global, 0, matrix.rows, &rows);
    EXPECT_TRUE(status.ok()) << status.message();
    std::vector<float> values(matrix.rows * matrix.columns);
    DecodeRows(
        {matrix.spec, rows.codes.data(), matrix.rows, matrix.columns, 0, rows.effective.data()},
        values.data());
    return values;
  }
  testing::TempFolder folder_;
  std::unique_ptr<Checkpoint> checkpoint_;
};

TEST_F(StoredMatrixTest, EverySpellingIsKnownByItsTensors) {
  struct Case {
    std::vector<TestTensor> tensors;
    Scheme scheme;
    Dialect dialect;
    uint64_t columns;
    std::string config = "{}";
  };
  const std::vector<Case> cases = {
      {{Bytes("x.weight", "BF16", {2, 8}, 32)}, Scheme::kBF16, Dialect::kPlain, 8},
      {{Bytes("x.weight", "F8_E4M3", {2, 64}, 128), Bytes("x.weight_scale", "U8", {2, 2}, 4)},
       Scheme::kMxfp8,
       Dialect::kCompressedTensors,
       64},
      {{Bytes("x.weight", "F8_E4M3", {2, 64}, 128),
        {"x.weight_scale", "F32", {2, 1}, FloatBytes({1, 2})}},
       Scheme::kFp8Channel,
       Dialect::kCompressedTensors,
       64},
      {{Bytes("x.weight", "F8_E4M3", {2, 64}, 128),
        {"x.weight_scale", "F32", {}, FloatBytes({1})},
        {"x.input_scale", "F32", {}, FloatBytes({1})}},
       Scheme::kFp8Tensor,
       Dialect::kModelOpt,
       64},
      {{Bytes("x.weight_packed", "U8", {2, 32}, 64), Bytes("x.weight_scale", "U8", {2, 2}, 4)},
       Scheme::kMxfp4,
       Dialect::kCompressedTensors,
       64},
      {{Bytes("x.weight_packed", "U8", {2, 32}, 64),
        Bytes("x.weight_scale", "F8_E4M3", {2, 4}, 8),
        {"x.weight_global_scale", "F32", {1}, FloatBytes({2})}},
       Scheme::kNvfp4,
       Dialect::kCompressedTensors,
       64},
      {{Bytes("x.weight", "U8", {2, 32}, 64),
        Bytes("x.weight_scale", "F8_E4M3", {2, 4}, 8),
        {"x.weight_scale_2", "F32", {}, FloatBytes({2})}},
       Scheme::kNvfp4,
       Dialect::kModelOpt,
       64},
      {{Bytes("x.weight", "I8", {2, 32}, 64), Bytes("x.scale", "F8_E8M0", {2, 2}, 4)},
       Scheme::kMxfp4,
       Dialect::kDeepSeekV4,
       64},
      {{Bytes("x.weight", "I8", {2, 32}, 64),
        {"x.weight_scale", "F32", {2, 1}, FloatBytes({1, 2})}},
       Scheme::kInt8Channel,
       Dialect::kCompressedTensors,
       32},
      {{Bytes("x.weight_packed", "I32", {2, 8}, 64),
        {"x.weight_scale", "BF16", {2, 2}, Bf16Bytes({1, 2, 3, 4})}},
       Scheme::kInt4Group,
       Dialect::kCompressedTensors,
       64,
       kInt4Config}};
  for (const Case& one : cases) {
    const StoredMatrix matrix = One(one.tensors, one.config);
    EXPECT_EQ(matrix.module, "x");
    EXPECT_EQ(matrix.spec.scheme, one.scheme) << NameOf(one.scheme);
    EXPECT_EQ(matrix.dialect, one.dialect) << NameOf(one.scheme);
    EXPECT_EQ(matrix.rows, 2u);
    EXPECT_EQ(matrix.columns, one.columns) << NameOf(one.scheme);
  }
}

// The same bytes, and the global scale the other way around.
TEST_F(StoredMatrixTest, GlobalScalesWorkAsTheirSpellingSays) {
  const auto values = [&](const std::string& codes, const std::string& global, float value) {
    return Values(One({Bytes(codes, "U8", {1, 8}, 8, '\x22'),          // 1.0
                       {"x.weight_scale", "F8_E4M3", {1, 1}, "\x40"},  // 2.0
                       {global, "F32", {1}, FloatBytes({value})}}));
  };
  EXPECT_EQ(values("x.weight_packed", "x.weight_global_scale", 4)[3], 0.5f);
  EXPECT_EQ(values("x.weight", "x.weight_scale_2", 4)[3], 8.0f);
}

// gpt-oss: expert 1's gate is rows 4, 6 of 8, its up rows 5, 7.
TEST_F(StoredMatrixTest, StackedExpertsAreMatricesOfTheirOwn) {
  std::string blocks, scales;
  for (char row = 0; row < 8; ++row) {
    blocks += std::string(16, static_cast<char>(row * 0x11));  // code `row` in every place
    scales += '\x7F';                                          // 1.0
  }
  const auto found =
      Find({{"e.experts.gate_up_proj_blocks", "U8", {2, 4, 1, 16}, blocks},
            {"e.experts.gate_up_proj_scales", "U8", {2, 4, 1}, scales},
            {"e.experts.gate_up_proj_bias", "BF16", {2, 4}, Bf16Bytes({0, 1, 2, 3, 4, 5, 6, 7})}});
  ASSERT_TRUE(found.ok()) << found.status().message();
  ASSERT_EQ(found->matrices.size(), 4u);
  ASSERT_EQ(found->biases.size(), 4u);
  EXPECT_EQ(found->matrices[2].module, "e.experts.1.gate_proj");
  EXPECT_EQ(found->matrices[3].module, "e.experts.1.up_proj");
  const std::vector<float> gate = Values(found->matrices[2]), up = Values(found->matrices[3]);
  EXPECT_EQ(gate[0], 2.0f);   // code 4
  EXPECT_EQ(gate[32], 4.0f);  // code 6
  EXPECT_EQ(up[0], 3.0f);     // code 5
  EXPECT_EQ(up[32], 6.0f);    // code 7
}

TEST_F(StoredMatrixTest, WhatIsMissingOrMisshapenIsNamed) {
  const TestTensor packed = Bytes("x.weight_packed", "U8", {2, 32}, 64);
  EXPECT_THAT(ErrorOf({packed}), AllOf(HasSubstr("'x.weight_packed'"), HasSubstr("has no scale")));
  EXPECT_THAT(ErrorOf({packed, Bytes("x.weight_scale", "U8", {2, 3}, 6)}),
              HasSubstr("MXFP4 needs U8 or F8_E8M0 [2, 2]"));
  EXPECT_THAT(ErrorOf({packed, Bytes("x.weight_scale", "F8_E4M3", {2, 4}, 8)}),
              HasSubstr("x.weight_global_scale is not in the index"));
  EXPECT_THAT(ErrorOf({packed,
                       Bytes("x.weight_scale", "F8_E4M3", {2, 2}, 4),
                       {"x.weight_global_scale", "F32", {1}, FloatBytes({2})}}),
              HasSubstr("NVFP4 needs F8_E4M3 [2, 4]"));
  EXPECT_THAT(ErrorOf({packed,
                       Bytes("x.weight_scale", "F8_E4M3", {2, 4}, 8),
                       {"x.weight_global_scale", "F32", {2}, FloatBytes({2, 2})}}),
              HasSubstr("the global scale of NVFP4 is one F32"));
  EXPECT_THAT(ErrorOf({Bytes("x.weight", "I8", {2, 32}, 64)}), HasSubstr("neither x.weight_scale"));
  EXPECT_THAT(
      ErrorOf({Bytes("x.weight", "I8", {2, 32}, 64), Bytes("x.scale", "F8_E8M0", {2, 3}, 6)}),
      HasSubstr("needs F8_E8M0 [2, 2]"));
  EXPECT_THAT(ErrorOf({Bytes("x.weight", "U8", {2, 32}, 64),
                       {"x.weight_scale_2", "F32", {}, FloatBytes({2})}}),
              HasSubstr("x.weight_scale is not in the index"));
  const std::vector<TestTensor> int4 = {
      Bytes("x.weight_packed", "I32", {2, 8}, 64),
      {"x.weight_scale", "BF16", {2, 2}, Bf16Bytes({1, 2, 3, 4})}};
  EXPECT_THAT(ErrorOf(int4), HasSubstr("a group size is never guessed"));
  std::vector<TestTensor> zero_point = int4;
  zero_point.push_back(Bytes("x.weight_zero_point", "I32", {1, 2}, 8));
  EXPECT_THAT(ErrorOf(zero_point, kInt4Config), HasSubstr("only symmetric INT4"));
  EXPECT_THAT(ErrorOf({Bytes("e.gate_up_proj_blocks", "U8", {1, 3, 1, 16}, 48),
                       Bytes("e.gate_up_proj_scales", "U8", {1, 3, 1}, 3)}),
              HasSubstr("gate and up rows alternate"));
}

TEST_F(StoredMatrixTest, TroublesAreToleratedWhereAsked) {
  testing::WriteCheckpoint(
      folder_.path(),
      {{"m.safetensors",
        {Bytes("x.weight_packed", "U8", {2, 32}, 64), Bytes("y.weight", "F32", {1, 1}, 4)}}},
      "{}");
  const auto checkpoint = Checkpoint::Open(PosixFileSystem(), folder_.path());
  std::vector<Finding> findings;
  const auto found = FindStoredMatrices(*checkpoint, &findings);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->matrices.size(), 1u);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].kind, "scale");
}

// Scales that are no numbers are refused when they are read, by name and place.
TEST_F(StoredMatrixTest, ScalesThatAreNoScalesAreRefused) {
  const auto error = [&](const std::vector<TestTensor>& tensors) {
    const StoredMatrix matrix = One(tensors);
    const auto global = ReadGlobalScale(*checkpoint_, matrix);
    if (!global.ok()) return global.status().message();
    StoredRows rows;
    const Status status = ReadStoredRows(*checkpoint_, matrix, *global, 0, 2, &rows);
    EXPECT_FALSE(status.ok());
    return status.message();
  };
  const TestTensor packed = Bytes("x.weight_packed", "U8", {2, 32}, 64);
  EXPECT_THAT(error({packed, {"x.weight_scale", "U8", {2, 2}, "\x70\x70\xFF\x70"}}),
              AllOf(HasSubstr("'x.weight_scale'"), HasSubstr("scale [1, 0]")));
  const TestTensor scales = Bytes("x.weight_scale", "F8_E4M3", {2, 4}, 8, '\x38');
  for (const float bad : {0.0f, -1.0f, std::nanf(""), INFINITY})
    EXPECT_THAT(error({packed, scales, {"x.weight_global_scale", "F32", {1}, FloatBytes({bad})}}),
                HasSubstr("finite and positive"));
  EXPECT_THAT(error({packed,
                     {"x.weight_scale", "F8_E4M3", {2, 4}, "\x38\x38\x38\x38\x38\x38\x38\x7F"},
                     {"x.weight_global_scale", "F32", {1}, FloatBytes({1})}}),
              HasSubstr("scale [1, 3]"));
}

}  // namespace
}  // namespace blockscale
