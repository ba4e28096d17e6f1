#include "checkpoint/fp8_matrix.h"

#include <cmath>

#include "numeric/block_quant.h"

namespace blockscale {
namespace {

constexpr uint64_t kMaxScaleBytes = uint64_t{64} << 20;
constexpr std::string_view kWeightSuffix = ".weight";

std::string Where(const TensorRef& tensor) {
  return fmt::format("{}: tensor '{}'", tensor.shard->file->path(), tensor.info->name);
}

bool IsSingleNumber(const TensorInfo& info) {
  return info.elements() == 1 && info.shape.size() <= 2;
}

// The one tensor beside "X.weight" that can hold its scales.
Result<TensorRef> FindScale(const Checkpoint& checkpoint, const TensorRef& weight) {
  const std::string_view name = weight.info->name;
  const std::string module(name.substr(0, name.size() - kWeightSuffix.size() + 1));
  TensorRef scale;
  for (const std::string_view suffix : kScaleSuffixes) {
    const TensorRef found = checkpoint.Find(module + std::string(suffix));
    if (!found) continue;
    if (scale)
      return InvalidInput("{}: has two scales, '{}' and '{}'; remove the one that does not belong",
                          Where(weight), scale.info->name, found.info->name);
    scale = found;
  }
  if (!scale)
    return InvalidInput(
        "{}: is F8_E4M3 and has no scale: none of {}weight_scale_inv, "
        "{}weight_scale, {}scale is in the index",
        Where(weight), module, module, module);
  return scale;
}

uint64_t CeilDivide(uint64_t a, uint64_t b) { return a / b + (a % b != 0); }

}  // namespace

std::optional<Format> ScaleFormatOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return Format::kF32;
    case DType::kBF16:
      return Format::kBF16;
    case DType::kF16:
      return Format::kFP16;
    case DType::kF8E8M0:
    case DType::kU8:
      return Format::kE8M0;
    default:
      return std::nullopt;
  }
}

Result<Fp8Matrix> MatchFp8Matrix(const Checkpoint& checkpoint, const TensorRef& weight) {
  const TensorInfo& info = *weight.info;
  if (info.shape.size() != 2 || !std::string_view(info.name).ends_with(kWeightSuffix))
    return InvalidInput(
        "{}: is F8_E4M3 {}; only matrices named '*.weight' with two dimensions can "
        "be converted",
        Where(weight), ShapeText(info.shape));
  if (info.elements() == 0)
    return InvalidInput("{}: is F8_E4M3 {} and holds nothing", Where(weight),
                        ShapeText(info.shape));
  Fp8Matrix matrix{.weight = weight, .rows = info.shape[0], .columns = info.shape[1]};
  BLOCKSCALE_ASSIGN_OR_RETURN(matrix.scale, FindScale(checkpoint, weight));
  const TensorInfo& scale = *matrix.scale.info;
  if (!ScaleFormatOf(scale.dtype))
    return InvalidInput("{}: scales are {}; F32, BF16, F16 and F8_E8M0 are supported",
                        Where(matrix.scale), NameOf(scale.dtype));
  if (IsSingleNumber(scale)) {
    matrix.block = {matrix.rows, matrix.columns};
    matrix.grid_rows = matrix.grid_columns = 1;
    return matrix;
  }
  const auto& quantization = checkpoint.config().quantization;
  if (!quantization || !quantization->block_size)
    return InvalidInput(
        "{}: scales are {}, but {} gives no weight_block_size, and a block size is "
        "never guessed; add it to quantization_config",
        Where(matrix.scale), ShapeText(scale.shape),
        JoinPath(checkpoint.folder(), kConfigFileName));
  matrix.block = *quantization->block_size;
  matrix.grid_rows = CeilDivide(matrix.rows, matrix.block.rows);
  matrix.grid_columns = CeilDivide(matrix.columns, matrix.block.columns);
  if (scale.shape != std::vector<uint64_t>{matrix.grid_rows, matrix.grid_columns})
    return InvalidInput("{}: scales are {}, but a {} matrix in blocks of {}x{} needs [{}, {}]",
                        Where(matrix.scale), ShapeText(scale.shape), ShapeText(info.shape),
                        matrix.block.rows, matrix.block.columns, matrix.grid_rows,
                        matrix.grid_columns);
  return matrix;
}

Result<std::vector<Fp8Matrix>> FindFp8Matrices(const Checkpoint& checkpoint) {
  std::vector<Fp8Matrix> matrices;
  for (const TensorRef& tensor : checkpoint.tensors()) {
    if (tensor.info->dtype != DType::kF8E4M3) continue;
    BLOCKSCALE_ASSIGN_OR_RETURN(Fp8Matrix matrix, MatchFp8Matrix(checkpoint, tensor));
    matrices.push_back(std::move(matrix));
  }
  return matrices;
}

Result<std::vector<float>> ReadScales(const Checkpoint& checkpoint, const Fp8Matrix& matrix) {
  BLOCKSCALE_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                              checkpoint.ReadAll(matrix.scale, kMaxScaleBytes));
  const uint64_t count = matrix.scale.info->elements();
  std::vector<float> scales(count);
  DecodeScales(*ScaleFormatOf(matrix.scale.info->dtype), {}, bytes.data(), count, scales.data());
  for (uint64_t i = 0; i < count; ++i) {
    if (std::isfinite(scales[i]) && scales[i] >= 0) continue;
    return InvalidInput(
        "{}: scale [{}, {}] is {}; scales must be finite and not negative: the "
        "checkpoint is damaged or was quantised wrongly",
        Where(matrix.scale), i / matrix.grid_columns, i % matrix.grid_columns, scales[i]);
  }
  return scales;
}

}  // namespace blockscale
