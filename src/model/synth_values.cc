#include "model/synth_values.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "numeric/minifloat.h"

namespace blockscale {
namespace {

constexpr uint64_t kBlock = 128;
constexpr uint64_t kFp4Power = 112, kFp8Power = 106;
constexpr uint8_t kLargestCode = 0x7E;  // 448

// SplitMix64 as a function of a counter: any part of a tensor can be made without the parts before.
uint64_t Mix(uint64_t key, uint64_t counter) {
  uint64_t z = key + (counter + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// Quantiles of the sum of four uniform bytes, minus its mean of 510: index 0..65535 -> -510..510.
// Sums of four are near enough to a Gaussian (standard deviation 147.8), and exact integers.
std::array<int16_t, 65536> MakeQuantiles() {
  std::vector<uint64_t> ways = {1};
  for (int byte = 0; byte < 4; ++byte) {
    std::vector<uint64_t> next(ways.size() + 255);
    for (size_t sum = 0; sum < ways.size(); ++sum)
      for (size_t value = 0; value < 256; ++value) next[sum + value] += ways[sum];
    ways = std::move(next);
  }
  std::array<int16_t, 65536> quantiles;
  uint64_t below = ways[0];
  size_t sum = 0;
  for (size_t index = 0; index < quantiles.size(); ++index) {
    const uint64_t target = index * 65536 + 32768;  // of 2^32 ways
    while (below <= target) below += ways[++sum];
    quantiles[index] = static_cast<int16_t>(static_cast<int>(sum) - 510);
  }
  return quantiles;
}

const std::array<int16_t, 65536>& Quantiles() {
  static const std::array<int16_t, 65536> quantiles = MakeQuantiles();
  return quantiles;
}

// A table of one element type, index = 16 random bits.
template <typename Element, typename Function>
std::array<Element, 65536> TableOf(Function of_quantile) {
  std::array<Element, 65536> table;
  for (size_t i = 0; i < table.size(); ++i) table[i] = of_quantile(Quantiles()[i]);
  return table;
}

// 448 / 510 of the quantile reaches 448 at the ends; 7/8 is an exact neighbour of that.
const std::array<uint8_t, 65536>& Fp8Table() {
  static const auto table =
      TableOf<uint8_t>([](int16_t q) { return E4M3::Encode(0.875f * static_cast<float>(q)); });
  return table;
}

const std::array<uint16_t, 65536>& Bf16Table() {
  static const auto table =
      TableOf<uint16_t>([](int16_t q) { return BF16::Encode(static_cast<float>(q) * 0x1p-14f); });
  return table;
}

const std::array<float, 65536>& Fp32Table() {
  static const auto table =
      TableOf<float>([](int16_t q) { return static_cast<float>(q) * 0x1p-14f; });
  return table;
}

// Fills elements [first, first + count) of Element from a table, four to one draw.
template <typename Element>
void FillFromTable(uint64_t key, const std::array<Element, 65536>& table, uint64_t first,
                   std::span<std::byte> out) {
  const uint64_t count = out.size() / sizeof(Element);
  for (uint64_t i = 0; i < count; i += 4) {
    uint64_t bits = Mix(key, (first + i) / 4);
    for (uint64_t j = i; j < std::min(i + 4, count); ++j, bits >>= 16)
      std::memcpy(out.data() + j * sizeof(Element), &table[bits & 0xFFFF], sizeof(Element));
  }
}

// One element of every block is the largest code, at a place of its own.
void PlaceLargest(uint64_t key, const TensorInfo& tensor, uint64_t offset,
                  std::span<std::byte> out) {
  const uint64_t rows = tensor.shape[0], columns = tensor.shape[1];
  const uint64_t grid_columns = (columns + kBlock - 1) / kBlock;
  const uint64_t last = offset + out.size() - 1;
  for (uint64_t block_row = offset / columns / kBlock; block_row <= last / columns / kBlock;
       ++block_row) {
    for (uint64_t block_column = 0; block_column < grid_columns; ++block_column) {
      const uint64_t bits = Mix(~key, block_row * grid_columns + block_column);
      const uint64_t height = std::min(kBlock, rows - block_row * kBlock);
      const uint64_t width = std::min(kBlock, columns - block_column * kBlock);
      const uint64_t row = block_row * kBlock + (bits & 0xFFFF) % height;
      const uint64_t column = block_column * kBlock + (bits >> 16 & 0xFFFF) % width;
      const uint64_t at = row * columns + column;
      if (at >= offset && at <= last)
        out[at - offset] = std::byte(kLargestCode | (bits >> 63 << 7));
    }
  }
}

// Scales between 2^-13 and 2^-12: W then has the size of real weights.
void FillScales(uint64_t key, uint64_t first, std::span<std::byte> out) {
  for (uint64_t i = 0; i < out.size() / 4; ++i) {
    const float scale = static_cast<float>(0x10000 + (Mix(key, first + i) & 0xFFFF)) * 0x1p-29f;
    std::memcpy(out.data() + 4 * i, &scale, 4);
  }
}

// Norm weights near one.
void FillNorms(uint64_t key, uint64_t first, std::span<std::byte> out) {
  for (uint64_t i = 0; i < out.size() / 2; ++i) {
    const auto code = static_cast<uint16_t>(0x3F80 + (Mix(key, first + i) & 0xF));
    std::memcpy(out.data() + 2 * i, &code, 2);
  }
}

// One gaussian code for each half of 16 random bits, the first in the low half of a byte.
template <typename Code>
std::array<uint8_t, 65536> MakePairs(Code code_of) {
  std::array<uint8_t, 256> codes;
  for (size_t i = 0; i < codes.size(); ++i)
    codes[i] = static_cast<uint8_t>(code_of(Quantiles()[i * 256 + 128]));
  std::array<uint8_t, 65536> table;
  for (size_t i = 0; i < table.size(); ++i)
    table[i] = static_cast<uint8_t>(codes[i & 0xFF] | codes[i >> 8] << 4);
  return table;
}

// Codes of 6 stand for what lies beyond 1.7 standard deviations, as in blocks of 32 on average.
const std::array<uint8_t, 65536>& Fp4Pairs() {
  static const auto table =
      MakePairs([](int16_t q) { return E2M1::Encode(static_cast<float>(q) * 0x1.5p-6f); });
  return table;
}

const std::array<uint8_t, 65536>& Int4Pairs() {
  static const auto table =
      MakePairs([](int16_t q) { return Int4::Encode(static_cast<float>(q) * 0x1.4p-6f); });
  return table;
}

// Powers of two as E8M0 bytes: eleven of them, from 2^(lowest - 127) on.
void FillPowers(uint64_t key, uint64_t first, uint64_t lowest, std::span<std::byte> out) {
  for (uint64_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<std::byte>(lowest + Mix(key, first + i) % 11);
}

// BF16 scales from 2^-9 to 2^-8 times 2^-`small`.
void FillBf16Scales(uint64_t key, uint64_t first, int small, std::span<std::byte> out) {
  for (uint64_t i = 0; i < out.size() / 2; ++i) {
    const auto code =
        static_cast<uint16_t>(((127 - 9 - small) << 7) + (Mix(key, first + i) & 0x7F));
    std::memcpy(out.data() + 2 * i, &code, 2);
  }
}

bool IsScale(std::string_view name) {
  for (const std::string_view ending : {"weight_scale_inv", "weight_scale", ".scale", "_scales"})
    if (name.ends_with(ending)) return true;
  return false;
}

}  // namespace

void FillSynthetic(uint64_t seed, const TensorInfo& tensor, uint64_t offset,
                   std::span<std::byte> out) {
  if (out.empty()) return;
  const uint64_t key = Mix(seed, XXH3_64bits(tensor.name.data(), tensor.name.size()));
  switch (tensor.dtype) {
    case DType::kF8E4M3:
      FillFromTable(key, Fp8Table(), offset, out);
      return PlaceLargest(key, tensor, offset, out);
    case DType::kU8:
      if (IsScale(tensor.name)) return FillPowers(key, offset, kFp4Power, out);
      return FillFromTable(key, Fp4Pairs(), offset, out);
    case DType::kI8:
      return FillFromTable(key, Fp4Pairs(), offset, out);
    case DType::kI32:  // eight INT4 codes
      return FillFromTable(key, Int4Pairs(), offset, out);
    case DType::kF8E8M0:  // of FP4 experts, or of FP8 and then over codes up to 448
      return FillPowers(key, offset,
                        tensor.name.find(".experts.") != std::string::npos ? kFp4Power : kFp8Power,
                        out);
    case DType::kBF16:
      // Of FP8 blocks 2^-13, as in FillScales.
      if (IsScale(tensor.name))
        return FillBf16Scales(key, offset / 2, tensor.name.ends_with("_inv") ? 4 : 0, out);
      if (tensor.shape.size() == 1) return FillNorms(key, offset / 2, out);
      return FillFromTable(key, Bf16Table(), offset / 2, out);
    case DType::kF32:
      if (tensor.name.ends_with("weight_scale_inv")) return FillScales(key, offset / 4, out);
      return FillFromTable(key, Fp32Table(), offset / 4, out);
    default:
      std::fill(out.begin(), out.end(), std::byte{0});
  }
}

}  // namespace blockscale
