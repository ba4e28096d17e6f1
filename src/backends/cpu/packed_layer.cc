#include "backends/cpu/packed_layer.h"

#include <oneapi/tbb/parallel_for.h>

#include "base/status.h"
#include "numeric/block_quant.h"

namespace blockscale::cpu {
namespace {

constexpr size_t kScaleColumns = 128;  // of fp8-block

size_t BlocksOf(uint64_t rows) { return (rows + kTileRows - 1) / kTileRows; }

std::vector<float> ScaleRow(const MatrixRows& matrix, uint64_t r) {
  std::vector<float> scales(matrix.spec.grid_columns(matrix.columns));
  DecodeScales(matrix.spec.scale, {}, matrix.scale_row(r), scales.size(), scales.data());
  return scales;
}

// One FP32 a row: a channel's or a tensor's scale, or NVFP4's global one. Empty: none.
std::vector<float> RowScales(const MatrixRows& matrix) {
  std::vector<float> scales;
  const bool whole_rows = matrix.spec.has_scales() && matrix.spec.block_columns == 0;
  if (!whole_rows && !matrix.spec.has_global()) return scales;
  scales.assign(BlocksOf(matrix.rows) * kTileRows, 0.0f);
  for (uint64_t r = 0; r < matrix.rows; ++r)
    scales[r] = whole_rows ? ScaleRow(matrix, r)[0] : matrix.global.Apply(1);
  return scales;
}

// fp8-block: one FP32 for 64 rows and 128 columns.
std::vector<float> BlockScales(const MatrixRows& matrix) {
  std::vector<float> scales;
  if (matrix.spec.scheme != Scheme::kFp8Block) return scales;
  for (size_t b = 0; b < BlocksOf(matrix.rows); ++b) {
    const auto row = ScaleRow(matrix, b * kTileRows);
    scales.insert(scales.end(), row.begin(), row.end());
  }
  return scales;
}

std::vector<float> Biases(const MatrixRows& matrix) {
  std::vector<float> biases;
  if (matrix.bias == nullptr) return biases;
  biases.assign(BlocksOf(matrix.rows) * kTileRows, 0.0f);
  for (uint64_t r = 0; r < matrix.rows; ++r) biases[r] = matrix.bias_of(r);
  return biases;
}

Status CheckBlocks(const MatrixRows& matrix) {
  const QuantSpec& spec = matrix.spec;
  if (spec.scheme != Scheme::kFp8Block) return OkStatus();
  if (spec.block_columns == kScaleColumns && spec.block_rows % kTileRows == 0 &&
      matrix.first_row % kTileRows == 0 && matrix.row_step == 1)
    return OkStatus();
  return InvalidInput(
      "fp8-block of {} x {} from row {} on: the CPU's tiles take blocks of whole "
      "multiples of {} rows x {} columns; convert to mxfp8 or fp8-channel",
      spec.block_rows, spec.block_columns, matrix.first_row, kTileRows, kScaleColumns);
}

}  // namespace

Result<PackedLayer> PackedLayer::Make(const MoeSpec& spec, const LayerWeights& weights) {
  const TileFormat format = TileFormatOf(spec.weight_spec());
  const size_t fc1 = BlocksOf(spec.local_intermediate()) * (spec.hidden / kTileColumns) *
                     (spec.activation.gated() ? 2 : 1);
  const size_t fc2 = BlocksOf(spec.hidden) * (spec.local_intermediate() / kTileColumns);
  const size_t expert_bytes = (fc1 + fc2) * format.bytes();
  PackedLayer layer;
  BLOCKSCALE_ASSIGN_OR_RETURN(layer.tiles_, HugeBuffer::Make(expert_bytes * spec.local_experts()));
  layer.experts_.resize(spec.local_experts());
  for (uint32_t e = 0; e < spec.local_experts(); ++e) {
    BLOCKSCALE_ASSIGN_OR_RETURN(const ExpertWeights expert, weights.Expert(e));
    BLOCKSCALE_RETURN_IF_ERROR(layer.PackExpert(spec, expert, e));
  }
  return layer;
}

Status PackedLayer::PackExpert(const MoeSpec& spec, const ExpertWeights& from, uint32_t local) {
  const bool gated = spec.activation.gated();
  const size_t expert_bytes = tiles_.bytes() / spec.local_experts();
  std::byte* at = tiles_.data() + local * expert_bytes;
  const auto place = [&](const MatrixRows& matrix, size_t siblings, size_t index,
                         TileMatrix* to) -> Status {
    BLOCKSCALE_RETURN_IF_ERROR(CheckBlocks(matrix));
    to->format = TileFormatOf(matrix.spec);
    to->rows = matrix.rows;
    to->columns = matrix.columns;
    to->stride = siblings * to->block_bytes();
    to->tiles = at + index * to->block_bytes();
    std::byte* tiles = at + index * to->block_bytes();
    oneapi::tbb::parallel_for(size_t{0}, to->blocks(), [&](size_t b) {
      PackBlock(matrix, to->format, b, tiles + b * to->stride);
    });
    const auto keep = [&](std::vector<float> values) -> const float* {
      if (values.empty()) return nullptr;
      floats_.push_back(std::move(values));
      return floats_.back().data();
    };
    to->row_scales = keep(RowScales(matrix));
    to->block_scales = keep(BlockScales(matrix));
    to->bias = keep(Biases(matrix));
    return OkStatus();
  };
  PackedExpert& expert = experts_[local];
  // A block of gate and its block of up stand side by side: a task reads both.
  BLOCKSCALE_RETURN_IF_ERROR(place(from.gate, gated ? 2 : 1, 0, &expert.gate));
  if (gated) BLOCKSCALE_RETURN_IF_ERROR(place(from.up, 2, 1, &expert.up));
  at += expert.gate.blocks() * expert.gate.stride;
  return place(from.down, 1, 0, &expert.down);
}

size_t PackedLayer::bytes() const {
  size_t bytes = tiles_.bytes();
  for (const auto& values : floats_) bytes += values.size() * sizeof(float);
  return bytes;
}

}  // namespace blockscale::cpu
