// The kernels against integers: an MXFP8 x MXFP4 group is exact, whatever the order.

#include "backends/cpu/kernel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backends/cpu/expert_product.h"
#include "backends/cpu/packed_matrix.h"

namespace blockscale::cpu {
namespace {

TEST(Kernel, Mxfp4GroupsAreExactAndGroupsAreAddedInOrder) {
  const Packed packed("weights=mxfp4,inputs=mxfp8,intermediate=256,hidden=64,experts=2");
  const auto c = ParseMoeCase("weights=mxfp4,inputs=mxfp8,hidden=256,experts=2;tokens=9");
  const CaseData data = MakeCaseData(*c);
  std::vector<Operand> operands;
  for (size_t t = 0; t < 9; ++t) operands.push_back(OperandOf(data.inputs, t));
  std::vector<const Operand*> pointers;
  for (const Operand& operand : operands) pointers.push_back(&operand);
  std::vector<float> out(9 * kTileRows);
  ProductScratch scratch;
  MultiplyBlock(packed.tiles, ChooseKernel(packed.tiles.format), 0, pointers, &scratch, out.data());
  std::vector<float> x(256), w(256);
  for (size_t t = 0; t < 9; ++t) {
    if (!operands[t].rest.empty()) continue;  // two chains of sums, added at the end
    DecodeRow(data.inputs, t, x.data());
    for (size_t r = 0; r < kTileRows; ++r) {
      DecodeMatrixRow(packed.matrix, r, w.data());
      float sum = 0;
      for (size_t g = 0; g < 8; ++g) {
        double exact = 0;  // 53 bits hold any order of it
        for (size_t k = 0; k < 32; ++k) exact += double{x[32 * g + k]} * w[32 * g + k];
        sum = static_cast<float>(sum + exact);  // one rounding, as a fused multiply-add
      }
      EXPECT_EQ(out[t * kTileRows + r], sum) << t << " " << r;
    }
  }
}

// Where products and sums of a group are exact, every kernel gives the portable one's bits.
TEST(Kernel, Mxfp4OfMxfp8HasTheSameBitsOnEveryInstructionSet) {
  for (const char* text : {"weights=mxfp4,inputs=mxfp8,intermediate=512",
                           "weights=mxfp4,inputs=mxfp8,intermediate=96,hidden=96"}) {
    const Packed packed(text);
    const Kernel fast = ChooseKernel(packed.tiles.format);
    if (fast.name == "portable") GTEST_SKIP() << "this processor has the portable kernel alone";
    auto c = *ParseMoeCase("weights=mxfp4,inputs=mxfp8,top-k=1;tokens=11");
    c.spec.hidden = static_cast<uint32_t>(packed.tiles.columns);
    const CaseData data = MakeCaseData(c);
    std::vector<Operand> operands;
    for (size_t t = 0; t < 11; ++t) operands.push_back(OperandOf(data.inputs, t));
    std::vector<const Operand*> pointers;
    for (const Operand& operand : operands) pointers.push_back(&operand);
    std::vector<float> one(11 * kTileRows), other(11 * kTileRows);
    ProductScratch scratch;
    for (size_t block = 0; block < packed.tiles.blocks(); ++block) {
      MultiplyBlock(packed.tiles, fast, block, pointers, &scratch, one.data());
      MultiplyBlock(packed.tiles, KernelNamed("portable", packed.tiles.format), block, pointers,
                    &scratch, other.data());
      EXPECT_EQ(one, other) << text << " block " << block;
    }
  }
}

// INT8 rows: an integer sum is the BF16 kernel's where that is exact, and better where it is not.
TEST(Kernel, Int8RowsHaveTheBitsOfExactSums) {
  for (const char* text :
       {"weights=mxfp4,inputs=int8-32", "weights=mxfp4,inputs=int8-token",
        "weights=int4-group,inputs=int8-32", "weights=int8-channel,inputs=int8-32"}) {
    const Packed packed(text);
    const Kernel kernel = ChooseKernel(packed.tiles.format);
    if (kernel.run_int8 == nullptr) GTEST_SKIP() << "this processor has no kernel for INT8 rows";
    MoeCase c = *ParseMoeCase(std::string(text) + ",top-k=1;tokens=11");
    c.spec.hidden = static_cast<uint32_t>(packed.tiles.columns);
    const CaseData data = MakeCaseData(c);
    std::vector<Operand> bf16, int8;
    std::vector<const Operand*> bf16_rows, int8_rows;
    for (size_t t = 0; t < 11; ++t) {
      bf16.push_back(OperandOf(data.inputs, t));
      int8.push_back(Int8OperandOf(data.inputs, t, packed.tiles.format.element));
    }
    for (size_t t = 0; t < 11; ++t) {
      bf16_rows.push_back(&bf16[t]);
      int8_rows.push_back(&int8[t]);
    }
    std::vector<float> one(11 * kTileRows), other(11 * kTileRows);
    ProductScratch scratch;
    for (size_t block = 0; block < packed.tiles.blocks(); ++block) {
      MultiplyBlock(packed.tiles, kernel, block, bf16_rows, &scratch, one.data());
      MultiplyBlock(packed.tiles, kernel, block, int8_rows, &scratch, other.data());
      EXPECT_EQ(one, other) << text << " block " << block;
    }
  }
}

TEST(Kernel, Int8TimesInt8IsAnIntegerToTheEnd) {
  const Packed packed("weights=int8-channel,inputs=int8-token,intermediate=1024");
  const Kernel kernel = ChooseKernel(packed.tiles.format);
  if (kernel.run_int8 == nullptr) GTEST_SKIP() << "this processor has no kernel for INT8 rows";
  ScaledRows rows{.scheme = RowScheme::kInt8Token, .rows = 1, .columns = 1024};
  for (size_t k = 0; k < 1024; ++k)
    rows.codes.push_back(static_cast<std::byte>(static_cast<int8_t>(127 - 2 * (k % 128))));
  const float scale = 1;
  rows.scales.resize(4);
  std::memcpy(rows.scales.data(), &scale, 4);
  const Operand operand = Int8OperandOf(rows, 0, Format::kInt8);
  std::vector<float> out(kTileRows);
  ProductScratch scratch;
  MultiplyBlock(packed.tiles, kernel, 0, {&operand}, &scratch, out.data());
  for (size_t r = 0; r < kTileRows; ++r) {
    int64_t sum = 0;
    for (size_t k = 0; k < 1024; ++k)
      sum += static_cast<int8_t>(rows.codes[k]) *
             static_cast<int64_t>(static_cast<int8_t>(packed.matrix.code_row(r)[k]));
    EXPECT_EQ(out[r], static_cast<float>(sum)) << r;
  }
}

TEST(Kernel, Int8PlacesAreAPermutation) {
  for (const Format element : {Format::kE2M1, Format::kInt4, Format::kInt8}) {
    std::vector<int> seen(64, 0);
    for (size_t k = 0; k < 64; ++k) ++seen[Int8Place(element, k)];
    EXPECT_EQ(seen, std::vector<int>(64, 1));
  }
}

// Every code of every format, alone in its row: the kernel's tables against the codecs.
TEST(Kernel, EveryCodeDecodesExactly) {
  for (const char* text : {"weights=mxfp4", "weights=nvfp4", "weights=mxfp8", "weights=bf16",
                           "weights=int4-group", "weights=int8-channel", "weights=fp8-channel"}) {
    const Packed packed((std::string(text) + ",inputs=bf16").c_str());
    const BlockKernel kernel = ChooseKernel(packed.tiles.format).run;
    std::vector<float> codes(kTileColumns * kTileRows), scales(2 * kTileRows), out(kTileRows);
    for (size_t column = 0; column < packed.tiles.columns; ++column) {
      std::vector<uint16_t> x(packed.tiles.columns, 0);
      x[column] = BF16::Encode(1);
      const KernelRow row{x.data(), nullptr, out.data()};
      kernel(packed.tiles, 0, &row, 1);
      DecodeTile(packed.tiles, 0, column / 32, codes.data(), scales.data());
      for (size_t r = 0; r < kTileRows; ++r) {
        const float scale = scales[column % 32 / 16 * kTileRows + r];
        ASSERT_EQ(out[r], codes[column % 32 * kTileRows + r] * scale) << text << " " << column;
      }
    }
  }
}

TEST(Kernel, NumberOfRowsDoesNotMatter) {
  for (const char* text : {"weights=mxfp4,inputs=bf16", "weights=nvfp4,inputs=bf16",
                           "weights=mxfp8,inputs=bf16", "weights=bf16,inputs=bf16",
                           "weights=int4-group,inputs=bf16", "weights=int8-channel,inputs=bf16"}) {
    const Packed packed(text);
    const BlockKernel kernel = ChooseKernel(packed.tiles.format).run;
    std::vector<uint16_t> x(13 * packed.tiles.columns);
    for (size_t i = 0; i < x.size(); ++i) x[i] = BF16::Encode(std::sin(static_cast<float>(i)));
    std::vector<float> together(13 * kTileRows), alone(kTileRows);
    std::vector<KernelRow> rows;
    for (size_t j = 0; j < 13; ++j)
      rows.push_back({&x[j * packed.tiles.columns], nullptr, &together[j * kTileRows]});
    for (size_t count = 1; count <= 13; ++count) {
      kernel(packed.tiles, 1, rows.data(), count);
      for (size_t j = 0; j < count; ++j) {
        const KernelRow row{rows[j].bf16, nullptr, alone.data()};
        kernel(packed.tiles, 1, &row, 1);
        for (size_t r = 0; r < kTileRows; ++r)
          ASSERT_EQ(together[j * kTileRows + r], alone[r]) << text << " " << count << " " << j;
      }
    }
  }
}

TEST(Kernel, PlainRowsGoThroughInfinity) {
  const Packed packed("weights=mxfp4,inputs=mxfp8");
  std::vector<float> row(packed.tiles.columns, 1.0f), out(kTileRows), w(packed.tiles.columns);
  row[40] = INFINITY;
  RunBlockPlain(packed.tiles, 0, row.data(), out.data());
  for (size_t r = 0; r < kTileRows; ++r) {
    DecodeMatrixRow(packed.matrix, r, w.data());
    if (w[40] == 0) {
      EXPECT_TRUE(std::isnan(out[r]));
    } else {
      EXPECT_EQ(out[r], w[40] > 0 ? INFINITY : -INFINITY);
    }
  }
}

TEST(Kernel, NamesAreKnownOrNot) {
  const TileFormat format{Format::kE2M1, TileScale::kE8M0};
  EXPECT_NE(KernelNamed("portable", format).run, nullptr);
  EXPECT_EQ(KernelNamed("fastest", format).run, nullptr);
  EXPECT_FALSE(ChooseKernel(format).name.empty());
}

}  // namespace
}  // namespace blockscale::cpu
