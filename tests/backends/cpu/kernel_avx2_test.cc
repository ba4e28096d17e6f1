// The AVX2 kernel against the portable one, format by format.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "backends/cpu/expert_product.h"
#include "backends/cpu/packed_matrix.h"

namespace blockscale::cpu {
namespace {

// Several groups, and a last block of 32 rows.
constexpr const char* kLayers[] = {
    "weights=mxfp4", "weights=nvfp4",       "weights=int4-group,weight-group=32",
    "weights=mxfp8", "weights=fp8-channel", "weights=int8-channel",
    "weights=bf16"};
constexpr const char* kShape = ",inputs=bf16,hidden=160,intermediate=288,experts=2";

class KernelAvx2 : public testing::Test {
 protected:
  void SetUp() override {
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
      GTEST_SKIP() << "this processor has no AVX2 with FMA";
  }
};

Kernel Avx2(const Packed& packed) {
  const Kernel kernel = KernelNamed("avx2", packed.tiles.format);
  EXPECT_NE(kernel.run, nullptr);
  return kernel;
}

// Operand rows of normal data, with a scale for each group if wanted.
struct Rows {
  size_t columns;
  std::vector<uint16_t> bf16;
  std::vector<float> scales;
  std::vector<float> out;
  std::vector<KernelRow> rows;

  Rows(size_t count, size_t columns_of_each, bool group_scales) : columns(columns_of_each) {
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < count * columns; ++i) bf16.push_back(BF16::Encode(normal(random)));
    for (size_t i = 0; i < count * columns / kTileColumns; ++i)
      scales.push_back(1.5f + normal(random) / 8);
    out.assign(count * kTileRows, NAN);  // overwritten, whatever was there
    for (size_t j = 0; j < count; ++j)
      rows.push_back({&bf16[j * columns],
                      group_scales ? &scales[j * columns / kTileColumns] : nullptr,
                      &out[j * kTileRows]});
  }
};

// Sums of magnitudes, which bound the errors of both kernels: kTileRows of them.
std::vector<double> Magnitudes(const TileMatrix& matrix, size_t block, const KernelRow& row) {
  std::vector<float> codes(kTileColumns * kTileRows), scales(2 * kTileRows);
  std::vector<double> sums(kTileRows, 0.0);
  for (size_t g = 0; g < matrix.groups(); ++g) {
    DecodeTile(matrix, block, g, codes.data(), scales.data());
    const double own = row.group_scales != nullptr ? row.group_scales[g] : 1;
    for (size_t k = 0; k < kTileColumns; ++k)
      for (size_t r = 0; r < kTileRows; ++r)
        sums[r] += std::fabs(double{BF16::Decode(row.bf16[g * kTileColumns + k])} *
                             codes[k * kTileRows + r] * scales[k / 16 * kTileRows + r] * own);
  }
  return sums;
}

TEST_F(KernelAvx2, IsWithinRoundingOfThePortableKernel) {
  for (const char* layer : kLayers)
    for (const bool group_scales : {false, true}) {
      Packed packed((std::string(layer) + kShape).c_str());
      const std::vector<float> block_scales = {0.5f, 3, 0.7f, 11, 1.3f, 0.1f, 2, 5, 0.9f};
      if (packed.tiles.format == TileFormat{Format::kE4M3, TileScale::kNone})
        packed.tiles.block_scales = block_scales.data();  // as fp8-block: [3 blocks][3 x 128]
      ASSERT_EQ(packed.tiles.blocks(), 3u);
      for (size_t count = 1; count <= 9; ++count)
        for (size_t block = 0; block < 3; ++block) {
          Rows one(count, packed.tiles.columns, group_scales), other = one;
          for (size_t j = 0; j < count; ++j) other.rows[j].out = &other.out[j * kTileRows];
          Avx2(packed).run(packed.tiles, block, one.rows.data(), count);
          RunBlockPortable(packed.tiles, block, other.rows.data(), count);
          for (size_t j = 0; j < count; ++j) {
            const std::vector<double> size = Magnitudes(packed.tiles, block, one.rows[j]);
            // Each kernel rounds a product at most twice for itself and its scale, and once for
            // each addition: 32 columns, then the groups.
            const double bound =
                2 * static_cast<double>(kTileColumns + packed.tiles.groups() + 3) * 0x1p-24;
            for (size_t r = 0; r < kTileRows; ++r)
              ASSERT_NEAR(one.out[j * kTileRows + r], other.out[j * kTileRows + r], bound * size[r])
                  << layer << " " << count << " rows, block " << block << " " << j << " " << r;
          }
        }
    }
}

// Rests of groups that span much go through run_sparse.
TEST_F(KernelAvx2, Mxfp4OfMxfp8HasThePortableKernelsBits) {
  for (const char* text : {"weights=mxfp4,inputs=mxfp8,intermediate=1024,hidden=64",
                           "weights=mxfp4,inputs=mxfp8,intermediate=96,hidden=96"}) {
    const Packed packed(text);
    MoeCase c = *ParseMoeCase("weights=mxfp4,inputs=mxfp8,top-k=1;tokens=9");
    c.spec.hidden = static_cast<uint32_t>(packed.tiles.columns);
    CaseData data = MakeCaseData(c);
    for (size_t i = 0; i < data.inputs.codes.size(); i += 61) {
      data.inputs.codes[i] = std::byte{0x7E};      // 448
      data.inputs.codes[i ^ 1] = std::byte{0x01};  // 2^-9
    }
    std::vector<Operand> operands;
    size_t rests = 0;
    for (size_t t = 0; t < 9; ++t) {
      operands.push_back(OperandOf(data.inputs, t));
      rests += operands.back().rest_groups.size();
    }
    EXPECT_GT(rests, 0u);
    for (size_t count = 1; count <= 9; ++count) {
      std::vector<const Operand*> rows;
      for (size_t t = 0; t < count; ++t) rows.push_back(&operands[t]);
      std::vector<float> one(count * kTileRows), other(count * kTileRows);
      ProductScratch scratch;
      for (size_t block = 0; block < packed.tiles.blocks(); ++block) {
        MultiplyBlock(packed.tiles, Avx2(packed), block, rows, &scratch, one.data());
        MultiplyBlock(packed.tiles, KernelNamed("portable", packed.tiles.format), block, rows,
                      &scratch, other.data());
        ASSERT_EQ(one, other) << text << " block " << block << ", " << count << " rows";
      }
    }
  }
}

TEST_F(KernelAvx2, NumberOfRowsDoesNotMatter) {
  for (const char* layer : kLayers) {
    const Packed packed((std::string(layer) + kShape).c_str());
    Rows alone(13, packed.tiles.columns, true), together = alone;
    for (size_t j = 0; j < 13; ++j) {
      Avx2(packed).run(packed.tiles, 1, &alone.rows[j], 1);
      together.rows[j].out = &together.out[j * kTileRows];
    }
    for (size_t count = 1; count <= 13; ++count) {
      std::fill(together.out.begin(), together.out.end(), NAN);
      Avx2(packed).run(packed.tiles, 1, together.rows.data(), count);
      ASSERT_EQ(std::memcmp(together.out.data(), alone.out.data(), count * kTileRows * 4), 0)
          << layer << " " << count;
    }
  }
}

// A run over some groups is a run over all of them with zeros elsewhere.
TEST_F(KernelAvx2, SparseRunsAddTheirGroupsAlone) {
  for (const char* layer : kLayers) {
    const Packed packed((std::string(layer) + kShape).c_str());
    const std::vector<uint32_t> groups = {0, 3, 4, 8};
    Rows some(1, groups.size() * kTileColumns, false);
    Rows all(1, packed.tiles.columns, false);
    std::fill(all.bf16.begin(), all.bf16.end(), uint16_t{0});
    for (size_t i = 0; i < groups.size(); ++i)
      std::copy_n(&some.bf16[i * kTileColumns], kTileColumns, &all.bf16[groups[i] * kTileColumns]);
    for (size_t block = 0; block < packed.tiles.blocks(); ++block) {
      Avx2(packed).run_sparse(packed.tiles, block,
                              {some.bf16.data(), groups.data(), groups.size(), some.out.data()});
      Avx2(packed).run(packed.tiles, block, all.rows.data(), 1);
      ASSERT_EQ(some.out, all.out) << layer << " block " << block;
      Avx2(packed).run_sparse(packed.tiles, block, {nullptr, nullptr, 0, some.out.data()});
      ASSERT_EQ(some.out, std::vector<float>(kTileRows, 0.0f)) << layer;
    }
  }
}

// A tile whose row r has one code in all of its columns, and one scale.
std::vector<std::byte> UniformTile(const TileFormat& format, uint32_t first_code,
                                   uint32_t first_scale) {
  const uint32_t bits = static_cast<uint32_t>(BitsOf(format.element));
  std::vector<std::byte> tile(format.bytes());
  for (size_t i = 0; i < format.code_bytes(); ++i) {
    const uint32_t row = static_cast<uint32_t>(i / kLine % 4 * kQuarter + i % kLine / 4);
    const uint32_t code = first_code + row;
    tile[i] = static_cast<std::byte>(bits == 4    ? (code & 15) * 17
                                     : bits == 16 ? code * 257 >> (i % 2 * 8)
                                                  : code);
  }
  for (size_t i = 0; i < format.scale_bytes(); ++i) {
    const uint32_t scale = first_scale + static_cast<uint32_t>(i);
    // UE4M3's sign bit is always 0; BF16 scales are any pattern.
    tile[format.code_bytes() + i] =
        static_cast<std::byte>(format.scale == TileScale::kUE4M3 ? scale & 127 : scale);
  }
  return tile;
}

// Every code and scale, NaN among them: what decoding in registers must not get wrong.
TEST_F(KernelAvx2, EveryCodeAndScaleIsThePortableKernels) {
  for (const char* layer : kLayers) {
    const Packed packed((std::string(layer) + kShape).c_str());
    const TileFormat format = packed.tiles.format;
    TileMatrix one_tile{.format = format, .rows = kTileRows, .columns = kTileColumns};
    auto bytes = HugeBuffer::Make(format.bytes());
    ASSERT_TRUE(bytes.ok());
    one_tile.tiles = bytes->data();
    one_tile.stride = format.bytes();
    for (uint32_t first = 0; first < 256; first += 16) {
      const auto tile = UniformTile(format, first, 5 * first);
      std::copy(tile.begin(), tile.end(), bytes->data());
      for (size_t column = 0; column < kTileColumns; ++column) {
        std::vector<uint16_t> x(kTileColumns, 0);
        x[column] = BF16::Encode(1);
        std::vector<float> one(kTileRows), other(kTileRows);
        const KernelRow row{x.data(), nullptr, one.data()};
        const KernelRow other_row{x.data(), nullptr, other.data()};
        Avx2(packed).run(one_tile, 0, &row, 1);
        RunBlockPortable(one_tile, 0, &other_row, 1);
        for (size_t r = 0; r < kTileRows; ++r)
          ASSERT_TRUE(one[r] == other[r] || (std::isnan(one[r]) && std::isnan(other[r])))
              << layer << " from " << first << " column " << column << " row " << r << ": "
              << one[r] << " for " << other[r];
      }
    }
  }
}

TEST_F(KernelAvx2, IsChosenByName) {
  for (const char* layer : kLayers) {
    const Packed packed((std::string(layer) + kShape).c_str());
    EXPECT_EQ(Avx2(packed).name, "avx2");
    EXPECT_EQ(Avx2(packed).run_int8, nullptr);
    EXPECT_NE(ChooseKernel(packed.tiles.format).name, "portable");
  }
}

}  // namespace
}  // namespace blockscale::cpu
