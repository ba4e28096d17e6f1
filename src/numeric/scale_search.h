// The definition of how block scales are chosen (scale_rule.h), in plain scalar code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "numeric/block_quant.h"

namespace blockscale {

// Some values of a matrix that share one scale. Not owned.
struct BlockValues {
  const float* data = nullptr;
  size_t rows = 0;
  size_t columns = 0;
  size_t stride = 0;  // from row to row

  float at(size_t row, size_t column) const { return data[row * stride + column]; }
};

// A scale as it is stored and as it works.
struct BlockScale {
  uint32_t code = 0;  // of the scale format; FP32 scales as their bits
  float value = 1;    // effective: decoded, with the global scale applied
};

// 2^exponent for any exponent in [-149, 127].
float PowerOfTwo(int exponent);

// floor(log2(value)) of a positive value.
int FloorLog2(float value);

// The E8M0 exponent that `floor`, `ceil` or `even` choose for a block, in [-127, 127].
int MxExponent(float amax, Format element, ScaleRule rule);

// What absmax divides a block's largest magnitude by: 7.5 for INT4, 127 or 127.5 for INT8.
float IntegerDivisor(const EncodeOptions& options);

// How many scales `mse` tries for integers, absmax times 1, 0.99, 0.98 ...
inline constexpr int kShrinkSteps = 40;

// The scale of a block of zeros.
BlockScale ZeroScale(const EncodeOptions& options);

// The scale of one block.
BlockScale ChooseScale(const EncodeOptions& options, const BlockValues& block);

// The nearest value of an element format as FP32: what Encode and Decode give in turn.
float RoundToElement(Format element, float value, Int8Range range);

}  // namespace blockscale
