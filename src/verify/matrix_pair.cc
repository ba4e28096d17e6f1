#include "verify/matrix_pair.h"

#include <algorithm>
#include <string>

namespace blockscale {
namespace {

uint64_t PartsOf(uint64_t whole, uint64_t part) { return (whole + part - 1) / part; }

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
      failures->push_back({tensor.info->name, std::move(trouble)});
  }
  std::sort(pairs.begin(), pairs.end(), [](const MatrixPair& a, const MatrixPair& b) {
    return a.fp8.info->name < b.fp8.info->name;
  });
  return pairs;
}

}  // namespace blockscale
