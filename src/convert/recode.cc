#include "convert/recode.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "convert/recode_fp8_to_int8.h"
#include "numeric/block_cast.h"

namespace blockscale {
namespace {

using Way = OutputMatrix::Way;

// "FILE: tensor 'X' [row, column]": a place in a source, given by a row of the output.
std::string Place(const OutputMatrix& matrix, uint64_t row, uint64_t column) {
  const StoredMatrix& source = *matrix.sources[row % matrix.sources.size()];
  return fmt::format("{}: matrix '{}' [{}, {}]", source.codes.shard->file->path(), source.module,
                     row / matrix.sources.size(), column);
}

// Rows of all sources in turn. Sources that take turns have scales for single rows.
Status ReadSources(const Checkpoint& source, const OutputMatrix& matrix, const MatrixScales& scales,
                   uint64_t first, uint64_t count, RecodeBuffers& buffers) {
  const uint64_t parts = matrix.sources.size();
  if (parts == 1)
    return ReadStoredRows(source, *matrix.sources[0], scales.source[0], first, count,
                          &buffers.stored);
  const uint64_t rows = count / parts;
  for (uint64_t part = 0; part < parts; ++part) {
    BLOCKSCALE_RETURN_IF_ERROR(ReadStoredRows(source, *matrix.sources[part], scales.source[part],
                                              first / parts, rows, &buffers.part));
    const auto interleave = [&](auto& all, const auto& some) {
      all.resize(some.size() * parts);
      const size_t width = some.size() / rows;
      for (uint64_t row = 0; row < rows; ++row)
        std::copy_n(some.begin() + static_cast<ptrdiff_t>(row * width), width,
                    all.begin() + static_cast<ptrdiff_t>((row * parts + part) * width));
    };
    interleave(buffers.stored.codes, buffers.part.codes);
    interleave(buffers.stored.scales, buffers.part.scales);
    interleave(buffers.stored.effective, buffers.part.effective);
  }
  return OkStatus();
}

QuantRows SourceRows(const OutputMatrix& matrix, uint64_t first, uint64_t count,
                     const StoredRows& stored) {
  return {matrix.sources[0]->spec, stored.codes.data(), count, matrix.columns, first,
          stored.effective.data()};
}

// A value that no scheme can take, on the way to an error.
Status FirstNotFinite(const OutputMatrix& matrix, uint64_t first,
                      const std::vector<float>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    return InvalidInput(
        "{} is {}; weights must be finite numbers: get the checkpoint again from its source",
        Place(matrix, first + i / matrix.columns, i % matrix.columns), values[i]);
  }
  return OkStatus();
}

// A scale of 0 turns codes into zeros without a word.
Status CheckZeroScales(const OutputMatrix& matrix, uint64_t first, uint64_t count,
                       RecodeBuffers& buffers) {
  std::vector<float>& effective = buffers.stored.effective;
  if (std::find(effective.begin(), effective.end(), 0.0f) == effective.end()) return OkStatus();
  std::vector<float> ones = effective;
  for (float& scale : ones) scale = scale == 0 ? 1.0f : 0.0f;  // what is under a zero shows itself
  QuantRows rows = SourceRows(matrix, first, count, buffers.stored);
  rows.scales = ones.data();
  std::vector<float> hidden(count * matrix.columns);
  DecodeRows(rows, hidden.data());
  for (size_t i = 0; i < hidden.size(); ++i) {
    if (hidden[i] == 0) continue;
    return InvalidInput(
        "{} is a code of {}, but the scale of its block is 0; a zero scale may stand only over "
        "zero codes: the checkpoint is damaged",
        Place(matrix, first + i / matrix.columns, i % matrix.columns), hidden[i]);
  }
  return OkStatus();
}

Status DecodeSources(const OutputMatrix& matrix, uint64_t first, uint64_t count,
                     RecodeBuffers& buffers) {
  buffers.values.resize(count * matrix.columns);
  DecodeRows(SourceRows(matrix, first, count, buffers.stored), buffers.values.data());
  const float largest = LargestMagnitude(buffers.values.data(), buffers.values.size());
  if (!std::isfinite(largest)) return FirstNotFinite(matrix, first, buffers.values);
  if (!matrix.sources[0]->spec.has_scales()) return OkStatus();
  return CheckZeroScales(matrix, first, count, buffers);
}

// Sizes the result for `count` rows from `first` on, which begin at a row of target blocks.
void SizeResult(const OutputMatrix& matrix, uint64_t first, uint64_t count,
                RecodeBuffers& buffers) {
  const QuantSpec& spec = matrix.encode.spec;
  buffers.codes.resize(count * spec.row_bytes(matrix.columns));
  const uint64_t grid_rows =
      spec.has_scales() ? spec.grid_row(first + count - 1) - spec.grid_row(first) + 1 : 0;
  buffers.effective.resize(grid_rows * spec.grid_columns(matrix.columns));
  buffers.scales.resize(buffers.effective.size() * spec.scale_bytes());
}

void Measure(const OutputMatrix& matrix, uint64_t first, uint64_t count, RecodeBuffers& buffers) {
  const QuantSpec& spec = matrix.encode.spec;
  const uint64_t columns = matrix.columns, grid_columns = spec.grid_columns(columns);
  QuantRows rows = {spec, buffers.codes.data(), count, columns, first, buffers.effective.data()};
  buffers.decoded.resize(buffers.values.size());
  DecodeRows(rows, buffers.decoded.data());
  rows.rows = 1;
  for (uint64_t row = 0; row < count; ++row) {
    rows.codes = buffers.codes.data() + row * spec.row_bytes(columns);
    rows.first_row = first + row;
    rows.scales = buffers.effective.data() +
                  (spec.grid_row(first + row) - spec.grid_row(first)) * grid_columns;
    buffers.losses.push_back(MeasureRows(rows, buffers.values.data() + row * columns,
                                         buffers.decoded.data() + row * columns));
  }
}

Status Recode(const OutputMatrix& matrix, const MatrixScales& scales, uint64_t first,
              uint64_t count, RecodeBuffers& buffers) {
  BLOCKSCALE_RETURN_IF_ERROR(DecodeSources(matrix, first, count, buffers));
  SizeResult(matrix, first, count, buffers);
  EncodeOptions options = matrix.encode;
  options.global = scales.target;
  const bool one_scale = options.spec.scheme == Scheme::kFp8Tensor;
  EncodeRows(options, buffers.values.data(), count, matrix.columns,
             {buffers.codes.data(), one_scale ? nullptr : buffers.scales.data(),
              buffers.effective.data()});
  if (one_scale) std::memcpy(buffers.scales.data(), &scales.target.value, sizeof(float));
  Measure(matrix, first, count, buffers);
  return OkStatus();
}

Status Cast(const OutputMatrix& matrix, const MatrixScales& scales, uint64_t first, uint64_t count,
            RecodeBuffers& buffers) {
  BLOCKSCALE_RETURN_IF_ERROR(DecodeSources(matrix, first, count, buffers));
  SizeResult(matrix, first, count, buffers);
  CastMxfp4ToNvfp4(buffers.stored.codes.data(), buffers.stored.scales.data(), count, matrix.columns,
                   scales.cast_exponent, buffers.codes.data(), buffers.scales.data());
  DecodeScales(Format::kUE4M3, scales.target, buffers.scales.data(), buffers.effective.size(),
               buffers.effective.data());
  Measure(matrix, first, count, buffers);
  return OkStatus();
}

}  // namespace

Status RecodeRows(const Checkpoint& source, const OutputMatrix& matrix, const MatrixScales& scales,
                  uint64_t first, uint64_t count, RecodeBuffers* buffers) {
  buffers->losses.clear();
  BLOCKSCALE_RETURN_IF_ERROR(ReadSources(source, matrix, scales, first, count, *buffers));
  switch (matrix.way) {
    case Way::kFp8ToInt8:
      return RecodeFp8ToInt8(source, matrix, first, count, buffers);
    case Way::kRecode:
      return Recode(matrix, scales, first, count, *buffers);
    case Way::kExactCast:
      return Cast(matrix, scales, first, count, *buffers);
    case Way::kRepack:
      std::swap(buffers->codes, buffers->stored.codes);
      std::swap(buffers->scales, buffers->stored.scales);
      return OkStatus();
  }
  return OkStatus();
}

}  // namespace blockscale
