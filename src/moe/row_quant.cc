#include "moe/row_quant.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace blockscale {
namespace {

constexpr std::byte kInfiniteScale{0xFE};
constexpr std::byte kLargestCode{0x7E};  // E4M3 448
constexpr size_t kMxGroup = 32;

bool AllFinite(const float* values, size_t count) {
  float sum = 0;  // of x * 0: NaN as soon as one is not finite
  for (size_t i = 0; i < count; ++i) sum += values[i] * 0.0f;
  return sum == 0;
}

EncodeOptions OptionsOf(RowScheme scheme, const GlobalScale& global) {
  EncodeOptions options;
  options.spec = RowSpecOf(scheme);
  options.rule = scheme == RowScheme::kMxfp8 ? ScaleRule::kCeil : ScaleRule::kAbsmax;
  if (scheme == RowScheme::kNvfp4) options.global = global;
  return options;
}

void EncodeFinite(const EncodeOptions& options, const float* values, size_t columns,
                  std::byte* codes, std::byte* scales) {
  std::vector<float> effective(options.spec.grid_columns(columns));
  EncodeRows(options, values, 1, columns, {codes, scales, effective.data()});
}

// One group with something that is not finite.
void QuantiseBrokenMxGroup(const float* values, std::byte* codes, std::byte* scale) {
  float finite[kMxGroup];
  bool infinite = false;
  for (size_t i = 0; i < kMxGroup; ++i) {
    infinite |= std::isinf(values[i]);
    finite[i] = std::isfinite(values[i]) ? values[i] : 0.0f;
  }
  if (infinite) {
    *scale = kInfiniteScale;
    std::fill_n(codes, kMxGroup, std::byte{0});
  } else {
    EncodeFinite(OptionsOf(RowScheme::kMxfp8, {}), finite, kMxGroup, codes, scale);
  }
  for (size_t i = 0; i < kMxGroup; ++i)
    if (!std::isfinite(values[i])) codes[i] = kLargestCode;
}

void PoisonScale(RowScheme scheme, std::byte* scale) {
  const float nan = std::nanf("");
  if (scheme == RowScheme::kNvfp4)
    *scale = std::byte{0x7F};
  else
    std::memcpy(scale, &nan, sizeof nan);
}

void QuantiseBrokenRow(RowScheme scheme, const GlobalScale& global, const float* values,
                       size_t columns, std::byte* codes, std::byte* scales) {
  const EncodeOptions options = OptionsOf(scheme, global);
  const size_t group = GroupOf(scheme, columns);
  for (size_t g = 0; g * group < columns; ++g) {
    const float* from = values + g * group;
    std::byte* code = codes + options.spec.row_bytes(g * group);
    std::byte* scale = scales + g * options.spec.scale_bytes();
    if (AllFinite(from, group)) {
      EncodeFinite(options, from, group, code, scale);
    } else if (scheme == RowScheme::kMxfp8) {
      QuantiseBrokenMxGroup(from, code, scale);
    } else {
      std::fill_n(code, options.spec.row_bytes(group), std::byte{0});
      PoisonScale(scheme, scale);
    }
  }
}

}  // namespace

QuantSpec RowSpecOf(RowScheme scheme) {
  switch (scheme) {
    case RowScheme::kBf16:
      return SpecOf(Scheme::kBF16);
    case RowScheme::kMxfp8:
      return SpecOf(Scheme::kMxfp8);
    case RowScheme::kNvfp4:
      return SpecOf(Scheme::kNvfp4);
    case RowScheme::kInt8Token:
      return SpecOf(Scheme::kInt8Channel);
    case RowScheme::kFp8Token:
      return SpecOf(Scheme::kFp8Channel);
    case RowScheme::kInt8Group: {
      QuantSpec spec = SpecOf(Scheme::kInt8Channel);
      spec.block_columns = GroupOf(scheme, 0);
      return spec;
    }
    case RowScheme::kFp8Token128: {
      QuantSpec spec = SpecOf(Scheme::kFp8Block);
      spec.block_rows = 1;
      return spec;
    }
  }
  return {};
}

void QuantiseRow(RowScheme scheme, const GlobalScale& global, const float* values, size_t columns,
                 std::byte* codes, std::byte* scales) {
  if (scheme == RowScheme::kBf16) {
    for (size_t i = 0; i < columns; ++i) {
      const BF16::Code code = BF16::Encode(values[i], Overflow::kIeee);
      std::memcpy(codes + 2 * i, &code, 2);
    }
  } else if (AllFinite(values, columns)) {
    EncodeFinite(OptionsOf(scheme, global), values, columns, codes, scales);
  } else {
    QuantiseBrokenRow(scheme, global, values, columns, codes, scales);
  }
}

ScaledRows QuantiseRows(RowScheme scheme, const GlobalScale& global, const float* values,
                        size_t rows, size_t columns) {
  ScaledRows out{.scheme = scheme, .rows = rows, .columns = columns};
  if (scheme == RowScheme::kNvfp4) out.global = global;
  out.codes.resize(rows * out.code_bytes());
  out.scales.resize(rows * out.scale_bytes());
  for (size_t r = 0; r < rows; ++r)
    QuantiseRow(scheme, global, values + r * columns, columns, &out.codes[r * out.code_bytes()],
                out.scales.data() + r * out.scale_bytes());
  return out;
}

void DecodeRow(const ScaledRows& rows, size_t row, float* out) {
  const QuantSpec spec = RowSpecOf(rows.scheme);
  const size_t groups = spec.grid_columns(rows.columns);
  std::vector<float> scales(groups);
  if (groups > 0)
    DecodeScalesScalar(spec.scale, rows.global, rows.scales.data() + row * rows.scale_bytes(),
                       groups, scales.data());
  DecodeRowsScalar(
      {spec, rows.codes.data() + row * rows.code_bytes(), 1, rows.columns, 0, scales.data()}, out);
}

}  // namespace blockscale
