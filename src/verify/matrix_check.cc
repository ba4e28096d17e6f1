#include "verify/matrix_check.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "verify/trouble.h"

namespace blockscale {
namespace {

constexpr uint64_t kChunkBytes = uint64_t{1} << 20;
constexpr uint64_t kMaxScaleBytes = uint64_t{64} << 20;
constexpr int kLanes = 4;  // independent sums, so that one addition need not wait for the last

// E4M3 from its definition: sign, 4 exponent bits with bias 7, 3 mantissa bits, NaN at the top.
std::array<float, 256> MakeE4m3Table() {
  std::array<float, 256> table;
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    double value = exponent == 0 ? mantissa / 8.0 / 64.0
                                 : (1.0 + mantissa / 8.0) * std::pow(2.0, exponent - 7);
    if (exponent == 15 && mantissa == 7) value = std::numeric_limits<double>::quiet_NaN();
    table[code] = static_cast<float>(code >= 128 ? -value : value);
  }
  return table;
}

const std::array<float, 256>& E4m3Table() {
  static const std::array<float, 256> table = MakeE4m3Table();
  return table;
}

Result<std::vector<float>> ReadFloats(const Checkpoint& checkpoint, const TensorRef& tensor) {
  BLOCKSCALE_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                              checkpoint.ReadAll(tensor, kMaxScaleBytes));
  std::vector<float> values(tensor.info->elements());
  if (tensor.info->dtype == DType::kF32) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t low = std::to_integer<uint32_t>(bytes[2 * i]);
    const uint32_t high = std::to_integer<uint32_t>(bytes[2 * i + 1]);
    values[i] = std::bit_cast<float>(high << 24 | low << 16);
  }
  return values;
}

// Beyond it, code 127 was cut to the range; the factor is for the rounding of the scale to FP32.
double ClipPoint(double row_scale) { return 127.0 * row_scale * (1 + 1e-6); }

// A scale that is larger than needed would hide any error in steps of its own. Converters divide
// the largest value by 127, 127.5 or 128; a row of zeros may have any scale.
bool ScaleFits(double scale, double largest) {
  return largest == 0 || (largest / scale > 120 && largest / scale < 129);
}

// What a row adds up to.
struct Sums {
  std::array<double, kLanes> squares{}, errors{};
  double largest = 0;        // |W - q s|
  double largest_value = 0;  // |W|
  uint64_t clipped = 0;

  static double Total(const std::array<double, kLanes>& lanes) {
    double total = 0;
    for (const double lane : lanes) total += lane;
    return total;
  }
};

// Elements under one block scale and one row scale. Whatever is rare is not looked for here: the
// row is walked once more when its sums show that something is wrong with it.
void Compare(const uint8_t* fp8, const int8_t* int8, uint64_t count, float block_scale,
             double row_scale, Sums& sums) {
  const std::array<float, 256>& table = E4m3Table();
  const double clip_point = ClipPoint(row_scale), low_clip_point = -clip_point * 128 / 127;
  for (uint64_t i = 0; i < count; ++i) {
    const double value = static_cast<double>(table[fp8[i]] * block_scale);
    const double error = value - static_cast<double>(int8[i]) * row_scale;
    sums.squares[i % kLanes] += value * value;
    sums.errors[i % kLanes] += error * error;
    sums.largest = std::max(sums.largest, std::fabs(error));
    sums.largest_value = std::max(sums.largest_value, std::fabs(value));
    sums.clipped += int8[i] == 127 ? value > clip_point : int8[i] == -128 && value < low_clip_point;
  }
}

class MatrixCheck {
 public:
  MatrixCheck(const MatrixPair& pair, std::vector<float> block_scales,
              std::vector<float> row_scales)
      : pair_(pair), block_scales_(std::move(block_scales)), row_scales_(std::move(row_scales)) {}

  void Row(uint64_t row, const uint8_t* fp8, const int8_t* int8) {
    const double scale = row_scales_[row];
    if (!(std::isfinite(scale) && scale > 0)) {
      bad_scales_.Note([&] { return fmt::format("row {} has {}", row, scale); });
      return;
    }
    Sums sums;
    for (uint64_t block = 0; block < pair_.grid_columns; ++block) {
      const uint64_t begin = block * pair_.block_columns;
      const uint64_t count = std::min(pair_.block_columns, pair_.columns - begin);
      Compare(fp8 + begin, int8 + begin, count, BlockScale(row, begin), scale, sums);
    }
    const double squares = Sums::Total(sums.squares);
    if (!std::isfinite(squares)) return NoteNotFinite(row, fp8);
    if (!ScaleFits(scale, sums.largest_value))
      scales_off_.Note([&] {
        return fmt::format("row {} has {:.9g}, its largest value is {:.9g}", row, scale,
                           sums.largest_value);
      });
    const double half_steps = sums.largest / (0.5 * scale);
    if (half_steps > kHalfStepBound) NoteOff(row, fp8, int8);
    squares_ += squares;
    errors_ += Sums::Total(sums.errors);
    quality_.max_half_steps = std::max(quality_.max_half_steps, half_steps);
    quality_.clipped += sums.clipped;
    quality_.zero_rows += squares == 0;
  }

  MatrixQuality Finish(std::vector<VerifyFailure>* failures) {
    const std::string& name = pair_.fp8.info->name;
    bad_scales_.Tell(name, "row scales are not positive finite numbers", failures);
    not_finite_.Tell(name, "elements of the source are not finite", failures);
    scales_off_.Tell(name,
                     "row scales do not fit their rows, whose largest value is 127 or 127.5 steps",
                     failures);
    off_.Tell(name, "elements differ from the source by more than half a step", failures);
    quality_.name = name;
    quality_.rows = pair_.rows;
    quality_.columns = pair_.columns;
    quality_.relative_rmse = squares_ > 0 ? std::sqrt(errors_ / squares_) : 0;
    quality_.sqnr_db = SqnrDb(quality_.relative_rmse);
    return quality_;
  }

 private:
  float BlockScale(uint64_t row, uint64_t column) const {
    return block_scales_[row / pair_.block_rows * pair_.grid_columns +
                         column / pair_.block_columns];
  }

  void NoteNotFinite(uint64_t row, const uint8_t* fp8) {
    for (uint64_t column = 0; column < pair_.columns; ++column) {
      const float scale = BlockScale(row, column), value = E4m3Table()[fp8[column]] * scale;
      if (std::isfinite(value)) continue;
      not_finite_.Note([&] {
        return fmt::format("row {}, column {}: code {:#04x} times the scale {} is {}", row, column,
                           fp8[column], scale, value);
      });
    }
  }

  void NoteOff(uint64_t row, const uint8_t* fp8, const int8_t* int8) {
    const double scale = row_scales_[row];
    for (uint64_t column = 0; column < pair_.columns; ++column) {
      const double value = static_cast<double>(E4m3Table()[fp8[column]] * BlockScale(row, column));
      const double half_steps = std::fabs(value - int8[column] * scale) / (0.5 * scale);
      const bool clipped = int8[column] == 127 && value > ClipPoint(scale);
      const double limit = clipped ? kClippedBound : kHalfStepBound;
      if (half_steps <= limit) continue;
      off_.Note([&] {
        return fmt::format(
            "row {}, column {}: {:.9g} in the source, code {} times the scale {:.9g} here, {:.6f} "
            "half steps apart, limit {:.9g}",
            row, column, value, int8[column], scale, half_steps, limit);
      });
    }
  }

  const MatrixPair& pair_;
  std::vector<float> block_scales_, row_scales_;
  double squares_ = 0, errors_ = 0;
  MatrixQuality quality_;
  Trouble bad_scales_, scales_off_, not_finite_, off_;
};

}  // namespace

Result<MatrixQuality> CheckMatrix(const Checkpoint& source, const Checkpoint& converted,
                                  const MatrixPair& pair, std::vector<VerifyFailure>* failures) {
  BLOCKSCALE_ASSIGN_OR_RETURN(std::vector<float> block_scales,
                              ReadFloats(source, pair.block_scale));
  BLOCKSCALE_ASSIGN_OR_RETURN(std::vector<float> row_scales, ReadFloats(converted, pair.row_scale));
  MatrixCheck check(pair, std::move(block_scales), std::move(row_scales));
  const uint64_t rows_at_once =
      std::max<uint64_t>(1, kChunkBytes / std::max<uint64_t>(1, pair.columns));
  std::vector<std::byte> fp8, int8;
  for (uint64_t row = 0; row < pair.rows; row += rows_at_once) {
    const uint64_t rows = std::min(rows_at_once, pair.rows - row);
    fp8.resize(rows * pair.columns);
    int8.resize(rows * pair.columns);
    BLOCKSCALE_RETURN_IF_ERROR(source.Read(pair.fp8, row * pair.columns, fp8));
    BLOCKSCALE_RETURN_IF_ERROR(converted.Read(pair.int8, row * pair.columns, int8));
    for (uint64_t i = 0; i < rows; ++i)
      check.Row(row + i, reinterpret_cast<const uint8_t*>(fp8.data()) + i * pair.columns,
                reinterpret_cast<const int8_t*>(int8.data()) + i * pair.columns);
  }
  return check.Finish(failures);
}

}  // namespace blockscale
