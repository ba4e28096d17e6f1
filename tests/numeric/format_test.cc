#include "numeric/format.h"

#include <gtest/gtest.h>

#include <type_traits>

#include "numeric/scheme.h"

namespace blockscale {
namespace {

TEST(Format, NamesAreUniqueAndParseBack) {
  for (Format format : AllFormat()) {
    EXPECT_EQ(ParseFormat(NameOf(format)), format) << NameOf(format);
    EXPECT_GT(BitsOf(format), 0) << NameOf(format);
  }
  EXPECT_EQ(ParseFormat("e4m3fn"), std::nullopt);
  EXPECT_EQ(ParseFormat(""), std::nullopt);
}

template <typename Codec>
void ExpectFits(Format format) {
  if constexpr (!std::is_void_v<Codec>) {
    EXPECT_LE(Codec::kBits, BitsOf(format)) << NameOf(format);
    EXPECT_LE(BitsOf(format), 8 * static_cast<int>(sizeof(typename Codec::Code))) << NameOf(format);
  }
}

TEST(Format, BitsAgreeWithTheCodecs) {
#define BLOCKSCALE_EXPECT_FITS(enumerator, id, name, bits, Codec) \
  ExpectFits<Codec>(Format::enumerator);
  BLOCKSCALE_FORMATS(BLOCKSCALE_EXPECT_FITS)
#undef BLOCKSCALE_EXPECT_FITS
  EXPECT_EQ(BitsOf(Format::kE2M1), 4);
  EXPECT_EQ(BitsOf(Format::kUE4M3), 8);
  EXPECT_EQ(BitsOf(Format::kBF16), 16);
  EXPECT_EQ(BitsOf(Format::kF32), 32);
}

// Ids are written nowhere, but they are promised never to move.
TEST(Format, IdsStay) {
  EXPECT_EQ(static_cast<int>(Format::kF32), 0);
  EXPECT_EQ(static_cast<int>(Format::kE4M3), 3);
  EXPECT_EQ(static_cast<int>(Format::kInt8), 8);
  EXPECT_EQ(static_cast<int>(Scheme::kF32), 0);
  EXPECT_EQ(static_cast<int>(Scheme::kFp8Block), 3);
  EXPECT_EQ(static_cast<int>(Scheme::kInt8Channel), 5);
}

TEST(Scheme, NamesAreUniqueAndParseBack) {
  for (Scheme scheme : AllScheme()) EXPECT_EQ(ParseScheme(NameOf(scheme)), scheme);
  EXPECT_EQ(ParseScheme("fp8"), std::nullopt);
}

TEST(Scheme, FactsAreThoseOfTheFormats) {
  const SchemeFacts block = FactsOf(*ParseScheme("fp8-block"));
  EXPECT_EQ(block.element, Format::kE4M3);
  EXPECT_EQ(block.scale, Format::kF32);
  EXPECT_EQ(block.block_rows, 128u);
  EXPECT_EQ(block.block_columns, 128u);
  const SchemeFacts channel = FactsOf(*ParseScheme("int8-channel"));
  EXPECT_EQ(channel.element, Format::kInt8);
  EXPECT_EQ(channel.block_rows, 1u);
  EXPECT_EQ(channel.block_columns, 0u);
}

}  // namespace
}  // namespace blockscale
