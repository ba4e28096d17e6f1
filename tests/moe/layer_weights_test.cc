// Weights by expert: rows of halves and pairs without a copy, sizes that must fit.

#include "moe/layer_weights.h"

#include <gtest/gtest.h>

#include "moe/backend.h"

namespace blockscale {
namespace {

MoeSpec Spec(std::string_view text) {
  const auto spec = ParseMoeSpec(text);
  EXPECT_TRUE(spec.ok()) << spec.status().message();
  return *spec;
}

// Position-coded: value = 1000 * expert + row (small integers that BF16 holds), in column 0.
StackedWeights Numbered(const MoeSpec& spec) {
  StackedWeights weights;
  const auto fill = [&](uint32_t rows, uint32_t columns, std::vector<std::byte>* codes) {
    for (uint32_t e = 0; e < spec.local_experts(); ++e)
      for (uint32_t r = 0; r < rows; ++r)
        for (uint32_t c = 0; c < columns; ++c) {
          const uint16_t code = BF16::Encode(c == 0 ? static_cast<float>(32 * e + r) : 0.0f);
          codes->push_back(static_cast<std::byte>(code & 255));
          codes->push_back(static_cast<std::byte>(code >> 8));
        }
  };
  fill(spec.fc1_rows(), spec.hidden, &weights.w13_codes);
  fill(spec.hidden, spec.local_intermediate(), &weights.w2_codes);
  return weights;
}

float First(const MatrixRows& matrix, uint64_t row) {
  std::vector<float> values(matrix.columns);
  DecodeMatrixRow(matrix, row, values.data());
  return values[0];
}

constexpr char kTiny[] = "experts=4,ep=2:1,hidden=16,intermediate=8,weights=bf16,inputs=bf16";

TEST(LayerWeights, RowsOfEveryOrder) {
  const struct {
    const char* order;
    float gate_3, up_3;
  } cases[] = {
      {"up-gate", 32 + 11, 32 + 3}, {"gate-up", 32 + 3, 32 + 11}, {"interleaved", 32 + 6, 32 + 7}};
  for (const auto& c : cases) {
    const MoeSpec spec = Spec(std::string(kTiny) + ",order=" + c.order);
    const auto weights = MakeStackedWeights(spec, Numbered(spec));
    ASSERT_TRUE(weights.ok()) << weights.status().message();
    const auto expert = (*weights)->Expert(1);
    ASSERT_TRUE(expert.ok());
    EXPECT_EQ(First(expert->gate, 3), c.gate_3) << c.order;
    EXPECT_EQ(First(expert->up, 3), c.up_3) << c.order;
    EXPECT_EQ(First(expert->down, 15), 32 + 15) << c.order;
    EXPECT_EQ(expert->gate.rows, 8u);
  }
}

TEST(LayerWeights, SizesThatDoNotFitAreNamed) {
  const MoeSpec spec = Spec(kTiny);
  StackedWeights weights = Numbered(spec);
  weights.w13_codes.pop_back();
  EXPECT_EQ(MakeStackedWeights(spec, std::move(weights)).status().message(),
            "w13 codes holds 1023, the layer needs 1024");
  weights = Numbered(spec);
  weights.b2.resize(3);
  EXPECT_EQ(MakeStackedWeights(spec, std::move(weights)).status().message(),
            "b2 holds 3, the layer needs 0");
}

TEST(LayerWeights, BlocksAcrossGateAndUpAreRefused) {
  const MoeSpec spec = Spec("experts=2,hidden=128,intermediate=64,weights=fp8-block,inputs=bf16");
  EXPECT_EQ(
      MakeStackedWeights(spec, {}).status().message(),
      "w13 of 64 rows a half, order up-gate: blocks of 128 rows would hold rows of gate and of "
      "up; store halves of whole blocks");
}

// A scale of its own for each block of rows: the second half takes the second one.
TEST(LayerWeights, BlockScalesFollowTheHalves) {
  const MoeSpec spec = Spec(
      "experts=1,top-k=1,hidden=128,intermediate=128,weights=fp8-block,"
      "inputs=bf16");
  StackedWeights weights;
  weights.w13_codes.assign(256 * 128, std::byte{0x38});  // 1
  weights.w2_codes.assign(128 * 128, std::byte{0x38});
  const auto scales = [](std::initializer_list<float> values) {
    std::vector<std::byte> bytes;
    for (const float& v : values)
      for (size_t i = 0; i < 4; ++i) bytes.push_back(reinterpret_cast<const std::byte*>(&v)[i]);
    return bytes;
  };
  weights.w13_scales = scales({2, 3});
  weights.w2_scales = scales({5});
  const auto made = MakeStackedWeights(spec, std::move(weights));
  ASSERT_TRUE(made.ok()) << made.status().message();
  const auto expert = (*made)->Expert(0);
  ASSERT_TRUE(expert.ok());
  EXPECT_EQ(First(expert->up, 127), 2);
  EXPECT_EQ(First(expert->gate, 0), 3);
  EXPECT_EQ(First(expert->down, 64), 5);
}

TEST(Output, TypesRoundToNearestAndComeBack) {
  const float values[] = {1.00390625f, -65520, 1e-9f, 0};
  std::byte stored[16];
  float back[4];
  StoreOutput(OutputType::kF32, values, 4, stored);
  LoadOutput(OutputType::kF32, stored, 4, back);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(back[i], values[i]);
  StoreOutput(OutputType::kBf16, values, 4, stored);
  LoadOutput(OutputType::kBf16, stored, 4, back);
  EXPECT_EQ(back[0], 1);
  EXPECT_EQ(back[1], -65536);
  StoreOutput(OutputType::kFp16, values, 4, stored);
  LoadOutput(OutputType::kFp16, stored, 4, back);
  EXPECT_EQ(back[0], 1.00390625f);
  EXPECT_EQ(back[1], -INFINITY);
  EXPECT_EQ(back[2], 0);
}

TEST(Call, WhatDoesNotFitIsNamed) {
  const MoeSpec spec = Spec(kTiny);
  const std::vector<float> x(2 * 16);
  const ScaledRows inputs = QuantiseRows(RowScheme::kBf16, {}, x.data(), 2, 16);
  const std::vector<int32_t> ids = {0, 1, 2, 3};
  const std::vector<float> weights(4, 1.0f);
  EXPECT_TRUE(CheckCall(spec, {&inputs, ids, weights, {}}).ok());
  EXPECT_EQ(CheckCall(spec, {&inputs, std::span(ids).first(3), weights, {}}).message(),
            "3 ids and 4 weights for 2 tokens of 2 slots");
  ScaledRows other = inputs;
  other.columns = 8;
  EXPECT_EQ(CheckCall(spec, {&other, ids, weights, {}}).message(),
            "inputs are bf16 of 8 columns, the layer takes bf16 of 16");
  other = inputs;
  other.codes.pop_back();
  EXPECT_FALSE(CheckCall(spec, {&other, ids, weights, {}}).ok());
}

}  // namespace
}  // namespace blockscale
