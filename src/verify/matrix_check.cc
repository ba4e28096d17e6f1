#include "verify/matrix_check.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

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

uint64_t PartsOf(uint64_t whole, uint64_t part) { return (whole + part - 1) / part; }

void Fail(std::vector<VerifyFailure>* failures, const std::string& object, std::string message) {
  failures->push_back({object, std::move(message)});
}

// Fills in the block size of a pair; a sentence when the scales do not fit.
std::string SetBlocks(const Checkpoint& source, MatrixPair& pair) {
  const TensorInfo& scale = *pair.block_scale.info;
  if (scale.dtype != DType::kF32 && scale.dtype != DType::kBF16)
    return fmt::format("its scale '{}' is {}, not F32 or BF16", scale.name, NameOf(scale.dtype));
  if (scale.elements() == 1) {
    pair.block_rows = pair.rows;
    pair.block_columns = pair.columns;
    pair.grid_columns = 1;
    return "";
  }
  const auto& quantization = source.config().quantization;
  if (!quantization || !quantization->block_size) return "the source's config has no block size";
  pair.block_rows = quantization->block_size->rows;
  pair.block_columns = quantization->block_size->columns;
  pair.grid_columns = PartsOf(pair.columns, pair.block_columns);
  const uint64_t grid_rows = PartsOf(pair.rows, pair.block_rows);
  if (scale.shape == std::vector<uint64_t>{grid_rows, pair.grid_columns}) return "";
  return fmt::format("its scales are {} where blocks of {}x{} need [{}, {}]",
                     ShapeText(scale.shape), pair.block_rows, pair.block_columns, grid_rows,
                     pair.grid_columns);
}

// The sentence that says why there is no pair, or "".
std::string MakePair(const Checkpoint& source, const Checkpoint& converted, MatrixPair& pair) {
  const TensorInfo& fp8 = *pair.fp8.info;
  if (fp8.shape.size() != 2) return "is F8_E4M3 but no matrix";
  pair.rows = fp8.shape[0];
  pair.columns = fp8.shape[1];
  const std::string module = fp8.name.substr(0, fp8.name.rfind('.'));
  for (const char* suffix : {".weight_scale_inv", ".weight_scale", ".scale"}) {
    const TensorRef found = source.Find(module + suffix);
    if (found && pair.block_scale) return "has two scales in the source";
    if (found) pair.block_scale = found;
  }
  if (!pair.block_scale) return "has no scale in the source";
  if (std::string trouble = SetBlocks(source, pair); !trouble.empty()) return trouble;
  pair.int8 = converted.Find(fp8.name);
  pair.row_scale = converted.Find(module + ".weight_scale");
  if (!pair.int8) return "is missing in the converted checkpoint";
  if (!pair.row_scale) return "has no weight_scale in the converted checkpoint";
  const TensorInfo &codes = *pair.int8.info, &scales = *pair.row_scale.info;
  if (codes.dtype != DType::kI8 || codes.shape != fp8.shape)
    return fmt::format("is {} {} where I8 {} was expected", NameOf(codes.dtype),
                       ShapeText(codes.shape), ShapeText(fp8.shape));
  if (scales.dtype != DType::kF32 || scales.shape != std::vector<uint64_t>{pair.rows, 1})
    return fmt::format("has a weight_scale of {} {} where F32 [{}, 1] was expected",
                       NameOf(scales.dtype), ShapeText(scales.shape), pair.rows);
  return "";
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

// What a run over elements with one block scale and one row scale adds up.
struct Sums {
  std::array<double, kLanes> squares{}, errors{};
  double largest = 0;      // |W - q s| of codes inside the range
  double largest_end = 0;  // and of the codes at its ends
  uint64_t clipped = 0;
  bool nonzero = false;
  bool nan = false;
};

void Compare(const uint8_t* fp8, const int8_t* int8, uint64_t count, float block_scale,
             double row_scale, Sums& sums) {
  static const std::array<float, 256> table = MakeE4m3Table();
  const double end = 127.0 * row_scale * (1 + 1e-6);
  for (uint64_t i = 0; i < count; ++i) {
    const double value = static_cast<double>(table[fp8[i]] * block_scale);
    const double error = value - static_cast<double>(int8[i]) * row_scale;
    sums.squares[i % kLanes] += value * value;
    sums.errors[i % kLanes] += error * error;
    double& largest = int8[i] >= 127 || int8[i] <= -127 ? sums.largest_end : sums.largest;
    largest = std::max(largest, std::fabs(error));
    sums.nan |= !(error == error);
    sums.nonzero |= value != 0;
    sums.clipped += int8[i] == 127 ? value > end : int8[i] == -128 && value < -end * 128 / 127;
  }
}

// Counts one kind of trouble and remembers its first place.
struct Trouble {
  uint64_t count = 0;
  std::string first;
  template <typename Describe>
  void Note(Describe describe) {
    if (count++ == 0) first = describe();
  }
  void Tell(const std::string& object, const char* what,
            std::vector<VerifyFailure>* failures) const {
    if (count > 0) Fail(failures, object, fmt::format("{} {} (the first: {})", count, what, first));
  }
};

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
    const float* block_scales = &block_scales_[row / pair_.block_rows * pair_.grid_columns];
    for (uint64_t block = 0; block < pair_.grid_columns; ++block) {
      const uint64_t begin = block * pair_.block_columns;
      const uint64_t count = std::min(pair_.block_columns, pair_.columns - begin);
      Compare(fp8 + begin, int8 + begin, count, block_scales[block], scale, sums);
    }
    if (sums.nan) {
      nan_rows_.Note([&] { return fmt::format("row {}", row); });
      return;
    }
    const double inner = sums.largest / (0.5 * scale), end = sums.largest_end / (0.5 * scale);
    const double half_steps = std::max(inner, end);
    if (inner > kHalfStepBound || end > kEndCodeBound) {
      off_rows_.Note([&] {
        return fmt::format("row {}, off by {:.6f} half steps of a scale of {:.6g}, limit {:.7g}",
                           row, half_steps, scale,
                           inner > kHalfStepBound ? kHalfStepBound : kEndCodeBound);
      });
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      squares_ += sums.squares[lane];
      errors_ += sums.errors[lane];
    }
    quality_.max_half_steps = std::max(quality_.max_half_steps, half_steps);
    quality_.clipped += sums.clipped;
    quality_.zero_rows += !sums.nonzero;
  }

  MatrixQuality Finish(std::vector<VerifyFailure>* failures) {
    const std::string& name = pair_.fp8.info->name;
    bad_scales_.Tell(name, "row scales are not positive finite numbers", failures);
    nan_rows_.Tell(name, "rows hold values that are no numbers in the source", failures);
    off_rows_.Tell(name, "rows differ from the source by more than half a step", failures);
    quality_.name = name;
    quality_.rows = pair_.rows;
    quality_.columns = pair_.columns;
    quality_.relative_rmse = squares_ > 0 ? std::sqrt(errors_ / squares_) : 0;
    quality_.sqnr_db = SqnrDb(quality_.relative_rmse);
    return quality_;
  }

 private:
  const MatrixPair& pair_;
  std::vector<float> block_scales_, row_scales_;
  double squares_ = 0, errors_ = 0;
  MatrixQuality quality_;
  Trouble bad_scales_, nan_rows_, off_rows_;
};

}  // namespace

std::vector<MatrixPair> PairMatrices(const Checkpoint& source, const Checkpoint& converted,
                                     std::vector<VerifyFailure>* failures) {
  std::vector<MatrixPair> pairs;
  for (const TensorRef& tensor : source.tensors()) {
    if (tensor.info->dtype != DType::kF8E4M3) continue;
    MatrixPair pair{.fp8 = tensor};
    std::string trouble = MakePair(source, converted, pair);
    if (trouble.empty())
      pairs.push_back(pair);
    else
      Fail(failures, tensor.info->name, std::move(trouble));
  }
  std::sort(pairs.begin(), pairs.end(), [](const MatrixPair& a, const MatrixPair& b) {
    return a.fp8.info->name < b.fp8.info->name;
  });
  return pairs;
}

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
