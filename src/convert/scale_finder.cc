// Global scales: the largest magnitude of all matrices that share one, or their largest exponent.
#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "convert/recode.h"
#include "numeric/block_cast.h"

namespace blockscale {
namespace {

using Way = OutputMatrix::Way;

constexpr uint64_t kPieceElements = uint64_t{1} << 18;

std::string Where(const TensorRef& tensor) {
  return fmt::format("{}: tensor '{}'", tensor.shard->file->path(), tensor.info->name);
}

struct Piece {
  const StoredMatrix* matrix = nullptr;
  uint64_t first = 0, count = 0;
  float largest = 0;  // magnitude, or exponent
  Status status;
};

std::vector<Piece> PiecesOf(const std::vector<const StoredMatrix*>& group) {
  std::vector<Piece> pieces;
  for (const StoredMatrix* matrix : group) {
    const uint64_t rows = std::max<uint64_t>(1, kPieceElements / matrix->columns);
    for (uint64_t first = 0; first < matrix->rows; first += rows)
      pieces.push_back({matrix, first, std::min(rows, matrix->rows - first)});
  }
  return pieces;
}

Status LargestOf(const Checkpoint& source, Piece& piece) {
  const StoredMatrix& matrix = *piece.matrix;
  BLOCKSCALE_ASSIGN_OR_RETURN(const GlobalScale global, ReadGlobalScale(source, matrix));
  StoredRows rows;
  BLOCKSCALE_RETURN_IF_ERROR(
      ReadStoredRows(source, matrix, global, piece.first, piece.count, &rows));
  std::vector<float> values(piece.count * matrix.columns);
  DecodeRows({matrix.spec, rows.codes.data(), piece.count, matrix.columns, piece.first,
              rows.effective.data()},
             values.data());
  piece.largest = LargestMagnitude(values.data(), values.size());
  if (std::isfinite(piece.largest)) return OkStatus();
  const auto bad =
      std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  const uint64_t at = static_cast<uint64_t>(bad - values.begin());
  return InvalidInput(
      "{}: matrix '{}' [{}, {}] is {}; weights must be finite numbers: get the "
      "checkpoint again from its source",
      matrix.codes.shard->file->path(), matrix.module, piece.first + at / matrix.columns,
      at % matrix.columns, *bad);
}

Status LargestExponentOf(const Checkpoint& source, Piece& piece) {
  StoredRows rows;
  BLOCKSCALE_RETURN_IF_ERROR(
      ReadStoredRows(source, *piece.matrix, {}, piece.first, piece.count, &rows));
  piece.largest = static_cast<float>(LargestExponent(rows.scales.data(), rows.scales.size()));
  return OkStatus();
}

// In parallel; the first trouble in order, so that a message never depends on threads.
Result<float> LargestIn(const Checkpoint& source, const std::vector<const StoredMatrix*>& group,
                        Status (*look)(const Checkpoint&, Piece&)) {
  std::vector<Piece> pieces = PiecesOf(group);
  oneapi::tbb::parallel_for(size_t{0}, pieces.size(),
                            [&](size_t i) { pieces[i].status = look(source, pieces[i]); });
  float largest = pieces.front().largest;
  for (const Piece& piece : pieces) {
    BLOCKSCALE_RETURN_IF_ERROR(piece.status);
    largest = std::max(largest, piece.largest);
  }
  return largest;
}

// INT4's weight_shape says how many columns of the last word count.
Status CheckShape(const Checkpoint& source, const StoredMatrix& matrix) {
  if (!matrix.shape) return OkStatus();
  const DType dtype = matrix.shape.info->dtype;
  if (matrix.shape.info->elements() != 2 || (dtype != DType::kI64 && dtype != DType::kI32))
    return InvalidInput("{}: is {} {}; two I64 or I32 were expected", Where(matrix.shape),
                        NameOf(dtype), ShapeText(matrix.shape.info->shape));
  BLOCKSCALE_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, source.ReadAll(matrix.shape, 16));
  uint64_t says[2] = {0, 0};
  for (size_t i = 0; i < 2; ++i)
    std::memcpy(&says[i], bytes.data() + i * (bytes.size() / 2), bytes.size() / 2);
  if (says[0] == matrix.rows && says[1] == matrix.columns) return OkStatus();
  return InvalidInput("{}: says [{}, {}], but the packed tensor is [{}, {}]", Where(matrix.shape),
                      says[0], says[1], matrix.rows, matrix.columns);
}

// Divisor and multiplier are each other's inverse: of the FP32 numbers next to 1 / value one that
// leads back to it, if there is one.
float Inverse(float value) {
  const float inverse = 1.0f / value;
  for (const float near :
       {inverse, std::nextafter(inverse, 0.0f), std::nextafter(inverse, 2 * inverse)})
    if (1.0f / near == value) return near;
  return inverse;
}

Result<float> InputScale(const Checkpoint& source, const StoredMatrix& matrix, bool invert) {
  if (matrix.input_scale.info->dtype != DType::kF32 || matrix.input_scale.info->elements() != 1)
    return InvalidInput("{}: is {} {}; one F32 was expected", Where(matrix.input_scale),
                        NameOf(matrix.input_scale.info->dtype),
                        ShapeText(matrix.input_scale.info->shape));
  float value = 0;
  BLOCKSCALE_RETURN_IF_ERROR(
      source.Read(matrix.input_scale, 0, std::as_writable_bytes(std::span(&value, 1))));
  if (!(std::isfinite(value) && value > 0))
    return InvalidInput("{}: is {}; a scale must be finite and positive", Where(matrix.input_scale),
                        value);
  return invert ? Inverse(value) : value;
}

}  // namespace

Result<MatrixScales> ScaleFinder::Find(const OutputMatrix& matrix) {
  MatrixScales scales;
  for (const StoredMatrix* source : matrix.sources) {
    BLOCKSCALE_RETURN_IF_ERROR(CheckShape(source_, *source));
    BLOCKSCALE_ASSIGN_OR_RETURN(const GlobalScale global, ReadGlobalScale(source_, *source));
    scales.source.push_back(global);
  }
  const GlobalScale& from = scales.source.front();
  if (matrix.way == Way::kRepack) {
    const bool invert = from.kind != matrix.global_kind;
    scales.target = {matrix.global_kind, invert ? Inverse(from.value) : from.value};
    if (matrix.input_scale_offset != 0) {
      BLOCKSCALE_ASSIGN_OR_RETURN(scales.input_scale,
                                  InputScale(source_, *matrix.sources.front(), invert));
    }
    return scales;
  }
  if (matrix.encode.spec.scheme == Scheme::kFp8Tensor) {
    BLOCKSCALE_ASSIGN_OR_RETURN(const float amax, LargestIn(source_, matrix.sources, LargestOf));
    scales.target = TensorScale(amax, matrix.encode.rule);
    return scales;
  }
  if (!matrix.encode.spec.has_global()) return scales;
  auto found = shared_.find(matrix.group);
  if (found == shared_.end()) {
    BLOCKSCALE_ASSIGN_OR_RETURN(const Shared shared,
                                FindShared(matrix, plan_.groups[matrix.group]));
    found = shared_.emplace(matrix.group, shared).first;
  }
  scales.target = found->second.global;
  scales.cast_exponent = found->second.cast_exponent;
  return scales;
}

Result<ScaleFinder::Shared> ScaleFinder::FindShared(
    const OutputMatrix& matrix, const std::vector<const StoredMatrix*>& group) const {
  Shared shared;
  if (matrix.way == Way::kExactCast) {
    BLOCKSCALE_ASSIGN_OR_RETURN(const float largest, LargestIn(source_, group, LargestExponentOf));
    shared.cast_exponent = static_cast<int>(largest);
    shared.global = CastGlobal(shared.cast_exponent, matrix.global_kind);
    return shared;
  }
  BLOCKSCALE_ASSIGN_OR_RETURN(const float amax, LargestIn(source_, group, LargestOf));
  shared.global = Nvfp4Global(amax, matrix.encode.rule, matrix.global_kind);
  return shared;
}

}  // namespace blockscale
