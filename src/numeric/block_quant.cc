#include "numeric/block_quant.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "numeric/scale_search.h"

namespace blockscale {
namespace {

template <typename Codec>
std::array<float, 256> MakeTable() {
  std::array<float, 256> table{};
  for (size_t code = 0; code < table.size(); ++code)
    table[code] = Codec::Decode(static_cast<typename Codec::Code>(code));
  return table;
}

template <typename Codec>
const std::array<float, 256>& TableOf() {
  static const std::array<float, 256> table = MakeTable<Codec>();
  return table;
}

// Null for formats of more than eight bits.
const std::array<float, 256>* TableOf(Format format) {
  switch (format) {
    case Format::kE4M3:
      return &TableOf<E4M3>();
    case Format::kE5M2:
      return &TableOf<E5M2>();
    case Format::kUE4M3:
      return &TableOf<UE4M3>();
    case Format::kE2M1:
      return &TableOf<E2M1>();
    case Format::kE8M0:
      return &TableOf<E8M0>();
    case Format::kInt8:
      return &TableOf<Int8>();
    case Format::kInt4:
      return &TableOf<Int4>();
    case Format::kF32:
    case Format::kBF16:
    case Format::kFP16:
      return nullptr;
  }
  return nullptr;
}

template <typename Word>
Word Load(const std::byte* at) {
  Word word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// Element `index` of a row, or a scale of a list.
float DecodeOne(Format format, const std::byte* row, size_t index) {
  switch (format) {
    case Format::kF32:
      return Load<float>(row + 4 * index);
    case Format::kBF16:
      return BF16::Decode(Load<uint16_t>(row + 2 * index));
    case Format::kFP16:
      return FP16::Decode(Load<uint16_t>(row + 2 * index));
    case Format::kE2M1:
    case Format::kInt4: {
      const unsigned pair = std::to_integer<unsigned>(row[index / 2]);
      return (*TableOf(format))[index % 2 == 0 ? pair & 15 : pair >> 4];
    }
    default:
      return (*TableOf(format))[std::to_integer<size_t>(row[index])];
  }
}

void StoreNibble(std::byte* row, size_t index, unsigned code) {
  std::byte& pair = row[index / 2];
  pair = index % 2 == 0 ? static_cast<std::byte>(code)
                        : static_cast<std::byte>(std::to_integer<unsigned>(pair) | code << 4);
}

// Stores the code nearest to `value`; low halves of a byte before high ones.
void EncodeOne(Format format, Int8Range range, std::byte* row, size_t index, float value) {
  const auto store = [&](auto word) { std::memcpy(row + index * sizeof word, &word, sizeof word); };
  switch (format) {
    case Format::kF32:
      return store(value);
    case Format::kBF16:
      return store(BF16::Encode(value));
    case Format::kFP16:
      return store(FP16::Encode(value));
    case Format::kE2M1:
      return StoreNibble(row, index, E2M1::Encode(value));
    case Format::kInt4:
      return StoreNibble(row, index, Int4::Encode(value));
    case Format::kInt8:
      return store(static_cast<int8_t>(RoundToElement(format, value, range)));
    default:
      return store(E4M3::Encode(value));
  }
}

size_t BlockWidth(const QuantSpec& spec, size_t columns) {
  return spec.block_columns == 0 ? columns : spec.block_columns;
}

// INT4 rows end in whole words; what is past the last column is the code of 0.
void FillRowEnd(const QuantSpec& spec, std::byte* row, size_t columns) {
  const size_t places = spec.row_bytes(columns) * 8 / static_cast<size_t>(BitsOf(spec.element));
  for (size_t i = columns; i < places; ++i) EncodeOne(spec.element, Int8Range::k127, row, i, 0.0f);
}

// One block of rows x columns with one scale.
void EncodeBlock(const EncodeOptions& options, const BlockValues& block, float scale,
                 std::byte* codes, size_t row_bytes, size_t column) {
  for (size_t row = 0; row < block.rows; ++row)
    for (size_t i = 0; i < block.columns; ++i) {
      const float value = options.spec.has_scales() ? block.at(row, i) / scale : block.at(row, i);
      EncodeOne(options.spec.element, options.int8_range, codes + row * row_bytes, column + i,
                value);
    }
}

// How many of the steps between neighbouring codes around `magnitude` an error is: the error times
// a power of two, which goes in two parts where it may be beyond FP32.
float StepsOf(const StepFacts& facts, float magnitude, float error) {
  if (facts.integer) return error;
  const int exponent =
      magnitude > 0 ? std::max(FloorLog2(magnitude), facts.lowest_exponent) : facts.lowest_exponent;
  const int shift = facts.mantissa_bits - exponent;
  if (!facts.wide()) return error * PowerOfTwo(shift);
  const int half = shift >> 1;
  return error * PowerOfTwo(half) * PowerOfTwo(shift - half);
}

}  // namespace

void DecodeScalesScalar(Format format, const GlobalScale& global, const std::byte* stored,
                        size_t count, float* out) {
  for (size_t i = 0; i < count; ++i) out[i] = global.Apply(DecodeOne(format, stored, i));
}

void DecodeRowsScalar(const QuantRows& in, float* out) {
  const QuantSpec& spec = in.spec;
  const size_t row_bytes = spec.row_bytes(in.columns), width = BlockWidth(spec, in.columns);
  const size_t grid_columns = spec.grid_columns(in.columns);
  for (size_t row = 0; row < in.rows; ++row) {
    const std::byte* codes = in.codes + row * row_bytes;
    const size_t grid_row = spec.grid_row(in.first_row + row) - spec.grid_row(in.first_row);
    for (size_t column = 0; column < in.columns; ++column) {
      float value = DecodeOne(spec.element, codes, column);
      if (spec.has_scales()) value *= in.scales[grid_row * grid_columns + column / width];
      out[row * in.columns + column] = value;
    }
  }
}

void EncodeRowsScalar(const EncodeOptions& options, const float* values, size_t rows,
                      size_t columns, const EncodedRows& out) {
  const QuantSpec& spec = options.spec;
  const size_t row_bytes = spec.row_bytes(columns), width = BlockWidth(spec, columns);
  const size_t height = spec.block_rows == 0 ? rows : static_cast<size_t>(spec.block_rows);
  size_t index = 0;  // of the block
  for (size_t row = 0; row < rows; row += height) {
    for (size_t column = 0; column < columns; column += width, ++index) {
      const BlockValues block = {values + row * columns + column, std::min(height, rows - row),
                                 std::min(width, columns - column), columns};
      BlockScale scale;
      if (spec.has_scales()) {
        scale = ChooseScale(options, block);
        out.effective[index] = scale.value;
        if (out.scales != nullptr)
          std::memcpy(out.scales + index * spec.scale_bytes(), &scale.code, spec.scale_bytes());
      }
      EncodeBlock(options, block, scale.value, out.codes + row * row_bytes, row_bytes, column);
    }
  }
  for (size_t row = 0; row < rows; ++row) FillRowEnd(spec, out.codes + row * row_bytes, columns);
}

float LargestMagnitudeScalar(const float* values, size_t count) {
  float largest = 0;
  for (size_t i = 0; i < count; ++i) {
    if (std::isnan(values[i])) return values[i];
    largest = std::max(largest, std::fabs(values[i]));
  }
  return largest;
}

void RowsLoss::Add(const RowsLoss& other) {
  sum_squares += other.sum_squares;
  sum_squared_errors += other.sum_squared_errors;
  largest_error = std::max(largest_error, other.largest_error);
  clipped += other.clipped;
  zero_rows += other.zero_rows;
  inexact_blocks += other.inexact_blocks;
}

StepFacts StepFactsOf(Format element) {
  switch (element) {
    case Format::kE2M1:
      return {.mantissa_bits = 1, .lowest_exponent = 0, .largest = 6};
    case Format::kE4M3:
      return {.mantissa_bits = 3, .lowest_exponent = -6, .largest = 448};
    case Format::kFP16:
      return {.mantissa_bits = 10, .lowest_exponent = -14, .largest = 65504};
    case Format::kBF16:
      return {.mantissa_bits = 7, .lowest_exponent = -126, .largest = BF16::Decode(BF16::kLargest)};
    case Format::kInt8:
      return {.integer = true, .largest = 127};
    case Format::kInt4:
      return {.integer = true, .largest = 7};
    default:
      return {.mantissa_bits = 23,
              .lowest_exponent = -126,
              .largest = std::numeric_limits<float>::max()};
  }
}

RowsLoss MeasureRowsScalar(const QuantRows& encoded, const float* values, const float* decoded) {
  const QuantSpec& spec = encoded.spec;
  const size_t columns = encoded.columns, width = BlockWidth(spec, columns);
  const size_t grid_columns = spec.grid_columns(columns);
  const StepFacts facts = StepFactsOf(spec.element);
  std::array<double, kLossLanes> squares{}, errors{};
  RowsLoss loss;
  for (size_t row = 0; row < encoded.rows; ++row) {
    const size_t grid_row =
        spec.grid_row(encoded.first_row + row) - spec.grid_row(encoded.first_row);
    bool zero = true;
    for (size_t begin = 0; begin < columns; begin += width) {
      const float scale =
          spec.has_scales() ? encoded.scales[grid_row * grid_columns + begin / width] : 1.0f;
      bool exact = true;
      float worst = 0;  // in steps times the scale
      for (size_t column = begin; column < std::min(columns, begin + width); ++column) {
        const float x = values[row * columns + column], y = decoded[row * columns + column];
        const float error = x - y;
        squares[column % kLossLanes] += static_cast<double>(x) * x;
        errors[column % kLossLanes] += static_cast<double>(error) * error;
        zero &= x == 0;
        exact &= x == y;
        const float magnitude = std::fabs(x / scale);
        if (magnitude > facts.largest) {
          ++loss.clipped;
        } else {
          worst = std::max(worst, StepsOf(facts, magnitude, std::fabs(error)));
        }
      }
      loss.largest_error = std::max(loss.largest_error, worst / (0.5f * scale));
      loss.inexact_blocks += !exact;
    }
    loss.zero_rows += zero;
  }
  for (size_t lane = 0; lane < kLossLanes; ++lane) {
    loss.sum_squares += squares[lane];
    loss.sum_squared_errors += errors[lane];
  }
  return loss;
}

}  // namespace blockscale
