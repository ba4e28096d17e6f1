// A matrix encoded and decoded again: what the tests of block_quant work with.
#pragma once

#include <cstddef>
#include <random>
#include <vector>

#include "numeric/block_quant.h"

namespace blockscale {

struct QuantCase {
  size_t rows = 0, columns = 0;
  std::vector<std::byte> codes, scales;
  std::vector<float> effective, decoded;
  RowsLoss loss;
};

inline std::vector<float> Gaussian(size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// With the global scales that belong to the values.
inline EncodeOptions OptionsFor(Scheme scheme, ScaleRule rule, const std::vector<float>& values) {
  EncodeOptions options{.spec = SpecOf(scheme), .rule = rule};
  const float amax = LargestMagnitude(values.data(), values.size());
  if (scheme == Scheme::kNvfp4)
    options.global = Nvfp4Global(amax, rule, GlobalScale::Kind::kMultiplier);
  if (scheme == Scheme::kFp8Tensor) options.global = TensorScale(amax, rule);
  return options;
}

template <typename Encode, typename Decode>
QuantCase RunCase(const EncodeOptions& options, const std::vector<float>& values, size_t columns,
                  Encode encode, Decode decode) {
  const QuantSpec& spec = options.spec;
  QuantCase result{.rows = values.size() / columns, .columns = columns};
  const size_t grid = spec.grid_rows(result.rows) * spec.grid_columns(columns);
  result.codes.resize(result.rows * spec.row_bytes(columns));
  result.scales.resize(grid * spec.scale_bytes());
  result.effective.resize(grid);
  result.decoded.resize(values.size());
  encode(options, values.data(), result.rows, columns,
         EncodedRows{result.codes.data(), result.scales.data(), result.effective.data()});
  const QuantRows rows = {spec, result.codes.data(),    result.rows, columns,
                          0,    result.effective.data()};
  decode(rows, result.decoded.data());
  result.loss = MeasureRows(rows, values.data(), result.decoded.data());
  return result;
}

}  // namespace blockscale
