#include "backends/cpu/operand.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace blockscale::cpu {
namespace {

constexpr size_t kGroup = 32;
constexpr int kExactBits = 24;
constexpr float kLargestE2M1 = 6, kSmallestE2M1 = 0.5f;
// Products and their sums stay far from FP32's ends within these exponents.
constexpr int kLowestExponent = -100, kHighestExponent = 100;

uint16_t HighHalf(float x) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16); }
float FromHigh(uint16_t code) { return std::bit_cast<float>(static_cast<uint32_t>(code) << 16); }

float PowerOfTwo(int exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

// Whether 32 products of the group with E2M1 codes sum up exactly in FP32 in any order: all are
// multiples of one unit and the sum of their magnitudes is below 2^24 units. Exponents are in
// range.
bool SumsExactly(const float* group) {
  float sum = 0;
  int unit = kHighestExponent;
  for (size_t i = 0; i < kGroup; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(group[i]) & 0x7FFFFFFF;
    if (bits == 0) continue;
    sum += std::bit_cast<float>(bits);
    unit = std::min(unit, static_cast<int>(bits >> 23) - 150 + std::countr_zero(bits | 0x800000));
  }
  return sum * (kLargestE2M1 / kSmallestE2M1) < PowerOfTwo(std::min(unit + kExactBits, 126));
}

// Moves the smaller magnitudes of a group elsewhere.
void SplitGroup(float* group, float* second) {
  float amax = 0;
  for (size_t i = 0; i < kGroup; ++i) amax = std::max(amax, std::fabs(group[i]));
  const float border = amax * 0x1p-8f;
  for (size_t i = 0; i < kGroup; ++i)
    if (std::fabs(group[i]) < border) std::swap(group[i], second[i]);
}

bool InRange(const float* values, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (values[i] == 0) continue;
    const int exponent = static_cast<int>((std::bit_cast<uint32_t>(values[i]) >> 23) & 255) - 127;
    if (exponent < kLowestExponent || exponent > kHighestExponent) return false;
  }
  return true;
}

Operand Plain(std::vector<float> values) {
  Operand operand;
  operand.plain = std::move(values);
  return operand;
}

Operand FromMxfp8(std::vector<float> values) {
  Operand operand;
  for (size_t g = 0; g < values.size() / kGroup; ++g) {
    float* group = &values[g * kGroup];
    if (SumsExactly(group)) continue;
    float second[kGroup] = {};
    SplitGroup(group, second);
    operand.rest_groups.push_back(static_cast<uint32_t>(g));
    for (const float x : second) operand.rest.push_back(HighHalf(x));
  }
  operand.bf16.reserve(values.size());
  for (const float x : values) operand.bf16.push_back(HighHalf(x));
  return operand;
}

// Codes alone, by decoding with scales of 1.
std::vector<float> Codes(const ScaledRows& rows, size_t row, const std::vector<float>& scales) {
  std::vector<float> values(rows.columns);
  DecodeRows({RowSpecOf(rows.scheme), rows.codes.data() + row * rows.code_bytes(), 1, rows.columns,
              0, scales.data()},
             values.data());
  return values;
}

}  // namespace

Operand OperandOf(const ScaledRows& rows, size_t row) {
  const QuantSpec spec = RowSpecOf(rows.scheme);
  std::vector<float> scales(spec.grid_columns(rows.columns));
  const bool folded = rows.scheme == RowScheme::kMxfp8 || rows.scheme == RowScheme::kNvfp4;
  if (!scales.empty())
    DecodeScales(spec.scale, {}, rows.scales.data() + row * rows.scale_bytes(), scales.size(),
                 scales.data());
  std::vector<float> values =
      Codes(rows, row, folded ? scales : std::vector<float>(scales.size(), 1.0f));
  const bool finite =
      std::all_of(scales.begin(), scales.end(), [](float s) { return std::isfinite(s); });
  if (!finite || !InRange(values.data(), values.size())) {
    DecodeRow(rows, row, values.data());
    return Plain(std::move(values));
  }
  if (rows.scheme == RowScheme::kMxfp8) return FromMxfp8(std::move(values));
  Operand operand;
  for (const float x : values) operand.bf16.push_back(HighHalf(x));
  if (rows.scheme == RowScheme::kNvfp4) operand.row_scale = rows.global.Apply(1);
  if (rows.scheme == RowScheme::kInt8Token || rows.scheme == RowScheme::kFp8Token)
    operand.row_scale = scales[0];
  if (rows.scheme == RowScheme::kInt8Group)
    operand.group_scales = std::move(scales);
  else if (rows.scheme == RowScheme::kFp8Token128)
    for (size_t g = 0; g < rows.columns / kGroup; ++g)
      operand.group_scales.push_back(scales[g * kGroup / spec.block_columns]);
  return operand;
}

size_t Int8Place(Format element, size_t column) {
  constexpr size_t kOfBytes[4] = {0, 2, 1, 3};
  constexpr size_t kOfNibbles[8] = {0, 2, 4, 6, 1, 3, 5, 7};
  if (BitsOf(element) == 8) return column / 4 * 4 + kOfBytes[column % 4];
  return column / 8 * 8 + kOfNibbles[column % 8];
}

Operand Int8OperandOf(const ScaledRows& rows, size_t row, Format element) {
  const bool whole = rows.scheme == RowScheme::kInt8Token;
  std::vector<float> scales(whole ? 1 : rows.columns / kGroup);
  std::memcpy(scales.data(), rows.scales.data() + row * rows.scale_bytes(), rows.scale_bytes());
  for (const float scale : scales)
    if (!std::isfinite(scale)) return OperandOf(rows, row);
  const auto* codes = reinterpret_cast<const int8_t*>(rows.codes.data() + row * rows.columns);
  // Weights are taken as 2 * E2M1 + 12, INT4 + 8 or INT8 + 128.
  const int offset = element == Format::kE2M1 ? 12 : element == Format::kInt4 ? 8 : 128;
  const float halves = element == Format::kE2M1 ? 0.5f : 1;
  Operand operand;
  operand.int8.resize(rows.columns);
  for (size_t g = 0; g < rows.columns / kGroup; ++g) {
    int32_t sum = 0;
    for (size_t k = g * kGroup; k < (g + 1) * kGroup; ++k) {
      operand.int8[Int8Place(element, k)] = codes[k];
      sum += codes[k];
    }
    operand.starts.push_back(-offset * sum);
    operand.whole_start += operand.starts.back();
    if (!whole || element != Format::kInt8)
      operand.group_scales.push_back(halves * (whole ? 1 : scales[g]));
  }
  if (whole) operand.row_scale = scales[0];
  return operand;
}

Operand OperandOf(const float* values, size_t columns) {
  if (!InRange(values, columns)) return Plain({values, values + columns});
  Operand operand;
  operand.limbs = kMostLimbs;
  operand.bf16.resize(kMostLimbs * columns);
  for (size_t i = 0; i < columns; ++i) {
    float rest = values[i];
    for (size_t l = 0; l < kMostLimbs; ++l) {
      operand.bf16[l * columns + i] = HighHalf(rest);  // towards 0: three times 8 bits hold all 24
      rest -= FromHigh(operand.bf16[l * columns + i]);
    }
  }
  return operand;
}

}  // namespace blockscale::cpu
