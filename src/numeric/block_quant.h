// Every scheme's arithmetic, from codes to FP32 and from FP32 to codes, a few whole rows at a time.
//
// Decoding:  value = fl32(element(code) * scale), scale = fl32(block scale * or / global scale).
//            Products of E2M1 or E4M3 with a power of two are exact.
// Encoding:  scale by a rule (scale_rule.h), code = nearest(fl32(value / scale)), ties to even,
//            saturating; for a power of two the quotient is exact. A block of zeros gets code 0 and
//            scale 1 (E8M0: 2^-127; INT8 in the range of 128: 2^-23).
// Searching: mse, four-over-six and sweep measure a scale s on y = x * n and t = s * n, with n the
//            power of two that brings the block's largest magnitude into [1, 2):
//            q = nearest(fl32(y * fl32(1 / t))), error = sum of fl32(fl32(y - fl32(q * t))^2) in
//            FP32 over 16 lanes (place in the block mod 16), added in halves. The least error wins,
//            then the scale named first in scale_rule.h (sweep: the smaller).
// fl32 rounds to nearest, ties to even. Every build and instruction set gives these bits: the
// functions named Scalar are the definition, the others are as fast as the machine allows.
// Tests: tests/numeric/block_quant*_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "blockscale/fp8_to_int8.h"
#include "numeric/quant_spec.h"
#include "numeric/scale_rule.h"

namespace blockscale {

// Scales as they are stored, to FP32, with the global scale applied. `count` of them.
void DecodeScales(Format format, const GlobalScale& global, const std::byte* stored, size_t count,
                  float* out);
void DecodeScalesScalar(Format format, const GlobalScale& global, const std::byte* stored,
                        size_t count, float* out);

// Whole rows of a quantised matrix. Not owned.
struct QuantRows {
  QuantSpec spec;
  const std::byte* codes = nullptr;  // spec.row_bytes(columns) a row
  size_t rows = 0;
  size_t columns = 0;
  size_t first_row = 0;           // of the matrix: decides where in its block of rows each row is
  const float* scales = nullptr;  // DecodeScales of the grid from row spec.grid_row(first_row) on
};

// `out` [rows][columns]. NaN codes give NaN with their sign; of two NaNs, code and scale, either
// may go on.
void DecodeRows(const QuantRows& in, float* out);
void DecodeRowsScalar(const QuantRows& in, float* out);

struct EncodeOptions {
  QuantSpec spec;
  ScaleRule rule = ScaleRule::kAbsmax;  // RuleFits(rule, spec.scheme), and not exact-cast
  Int8Range int8_range = Int8Range::k127;
  // NVFP4: the matrix's global scale, from Nvfp4Global. fp8-tensor: kMultiplier with the one scale
  // of the matrix, from TensorScale.
  GlobalScale global;
};

// Where the result goes. Not owned.
struct EncodedRows {
  std::byte* codes = nullptr;
  std::byte* scales = nullptr;  // as stored; null without scales and for fp8-tensor
  float* effective = nullptr;   // the same, decoded: what QuantRows::scales wants
};

// Encodes `rows` x `columns` finite values; they begin at a row of blocks and end at one or at the
// end of the matrix.
void EncodeRows(const EncodeOptions& options, const float* values, size_t rows, size_t columns,
                const EncodedRows& out);
void EncodeRowsScalar(const EncodeOptions& options, const float* values, size_t rows,
                      size_t columns, const EncodedRows& out);

// The largest magnitude; NaN if any value is NaN.
float LargestMagnitude(const float* values, size_t count);
float LargestMagnitudeScalar(const float* values, size_t count);

// The global scale for matrices whose largest magnitude is `amax`: amax / (6 * 448) as a
// multiplier, its inverse as a divisor; with four-over-six 256 instead of 448. 1 when amax is 0.
GlobalScale Nvfp4Global(float amax, ScaleRule rule, GlobalScale::Kind kind);

// fp8-tensor's scale: amax / 448, or with `ceil` the smallest power of two that is no less; 1 for
// 0.
GlobalScale TensorScale(float amax, ScaleRule rule);

// What encoding lost. An error is fl32(value - what came back). Sums are over kLossLanes lanes,
// column mod 8, in double, so that every build gives the same bits.
inline constexpr size_t kLossLanes = 8;

struct RowsLoss {
  double sum_squares = 0;         // of the values
  double sum_squared_errors = 0;  // of what came back
  float largest_error = 0;        // in half steps of the code at that place; clipped ones apart
  uint64_t clipped = 0;           // values beyond the largest code
  uint64_t zero_rows = 0;
  uint64_t inexact_blocks = 0;  // blocks (of one row) in which any value changed

  void Add(const RowsLoss& other);
};

// Compares `values` with what `encoded` decodes to, which the caller has in `decoded`.
// `largest_error` is the largest over blocks of max fl32(|error| / step) divided by fl32(scale /
// 2), with the step that codes have at the magnitude fl32(value / scale).
RowsLoss MeasureRows(const QuantRows& encoded, const float* values, const float* decoded);
RowsLoss MeasureRowsScalar(const QuantRows& encoded, const float* values, const float* decoded);

// How far apart the codes of an element format are: 2^(max(exponent, lowest) - mantissa bits)
// around a magnitude with that exponent, or 1 for integers.
struct StepFacts {
  bool integer = false;
  int mantissa_bits = 0;
  int lowest_exponent = 0;
  float largest = 0;  // magnitude

  // Whether the inverse of a step may be beyond FP32.
  bool wide() const { return lowest_exponent == -126; }
};
StepFacts StepFactsOf(Format element);

// The instruction set that the functions above use on this processor, as Highway names it.
const char* BlockQuantTarget();

}  // namespace blockscale
