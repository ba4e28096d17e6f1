#include "moe/layer_weights.h"

#include "base/status.h"
#include "numeric/block_quant.h"

namespace blockscale {
namespace {

struct StackSizes {
  size_t codes = 0;
  size_t scales = 0;
};

StackSizes SizesOf(const QuantSpec& spec, uint64_t rows, uint64_t columns) {
  return {rows * spec.row_bytes(columns),
          spec.grid_rows(rows) * spec.grid_columns(columns) * spec.scale_bytes()};
}

class Stacked final : public LayerWeights {
 public:
  Stacked(const MoeSpec& spec, StackedWeights weights)
      : spec_(spec), weights_(std::move(weights)) {}

  Result<ExpertWeights> Expert(uint32_t local) const override {
    BLOCKSCALE_CHECK(local < spec_.local_experts(), "expert {} of {}", local,
                     spec_.local_experts());
    const uint32_t inner = spec_.local_intermediate();
    const MatrixRows w13 = Matrix(local, spec_.fc1_rows(), spec_.hidden, weights_.w13_codes,
                                  weights_.w13_scales, weights_.w13_global, weights_.b13);
    ExpertWeights expert{.gate = w13, .up = w13};
    expert.gate.rows = expert.up.rows = inner;
    expert.gate.first_row = GateRow(spec_, 0);
    expert.gate.row_step = inner > 1 ? GateRow(spec_, 1) - GateRow(spec_, 0) : 1;
    expert.up.first_row = UpRow(spec_, 0);
    expert.up.row_step = inner > 1 ? UpRow(spec_, 1) - UpRow(spec_, 0) : 1;
    expert.down = Matrix(local, spec_.hidden, inner, weights_.w2_codes, weights_.w2_scales,
                         weights_.w2_global, weights_.b2);
    return expert;
  }

 private:
  MatrixRows Matrix(uint32_t local, uint64_t rows, uint64_t columns,
                    const std::vector<std::byte>& codes, const std::vector<std::byte>& scales,
                    const std::vector<GlobalScale>& global, const std::vector<float>& bias) const {
    const StackSizes sizes = SizesOf(spec_.weight_spec(), rows, columns);
    MatrixRows matrix{.spec = spec_.weight_spec(), .rows = rows, .columns = columns};
    matrix.codes = codes.data() + local * sizes.codes;
    matrix.scales = scales.data() + local * sizes.scales;
    if (!global.empty()) matrix.global = global[local];
    if (!bias.empty()) matrix.bias = bias.data() + local * rows;
    return matrix;
  }

  MoeSpec spec_;
  StackedWeights weights_;
};

Status SizeIs(const char* what, size_t size, size_t wanted) {
  if (size == wanted) return OkStatus();
  return InvalidInput("{} holds {}, the layer needs {}", what, size, wanted);
}

}  // namespace

void DecodeMatrixRow(const MatrixRows& matrix, uint64_t r, float* out) {
  const size_t groups = matrix.spec.grid_columns(matrix.columns);
  std::vector<float> scales(groups);
  if (groups > 0)
    DecodeScalesScalar(matrix.spec.scale, matrix.global, matrix.scale_row(r), groups,
                       scales.data());
  QuantSpec one_row = matrix.spec;
  if (one_row.block_rows != 0) one_row.block_rows = 1;
  DecodeRowsScalar({one_row, matrix.code_row(r), 1, matrix.columns, 0, scales.data()}, out);
}

Result<std::unique_ptr<LayerWeights>> MakeStackedWeights(const MoeSpec& spec,
                                                         StackedWeights weights) {
  const size_t experts = spec.local_experts();
  const uint32_t inner = spec.local_intermediate();
  const QuantSpec quant = spec.weight_spec();
  if (spec.activation.gated() && quant.block_rows > 1 &&
      (spec.order == GateUpOrder::kInterleaved || inner % quant.block_rows != 0))
    return InvalidInput(
        "w13 of {} rows a half, order {}: blocks of {} rows would hold rows of gate "
        "and of up; store halves of whole blocks",
        inner, NameOf(spec.order), quant.block_rows);
  const StackSizes w13 = SizesOf(quant, spec.fc1_rows(), spec.hidden);
  const StackSizes w2 = SizesOf(quant, spec.hidden, inner);
  BLOCKSCALE_RETURN_IF_ERROR(SizeIs("w13 codes", weights.w13_codes.size(), experts * w13.codes));
  BLOCKSCALE_RETURN_IF_ERROR(SizeIs("w13 scales", weights.w13_scales.size(), experts * w13.scales));
  BLOCKSCALE_RETURN_IF_ERROR(SizeIs("w2 codes", weights.w2_codes.size(), experts * w2.codes));
  BLOCKSCALE_RETURN_IF_ERROR(SizeIs("w2 scales", weights.w2_scales.size(), experts * w2.scales));
  const size_t globals = quant.has_global() ? experts : 0;
  BLOCKSCALE_RETURN_IF_ERROR(SizeIs("w13 global scales", weights.w13_global.size(), globals));
  BLOCKSCALE_RETURN_IF_ERROR(SizeIs("w2 global scales", weights.w2_global.size(), globals));
  const size_t biases = spec.biases ? experts : 0;
  BLOCKSCALE_RETURN_IF_ERROR(SizeIs("b13", weights.b13.size(), biases * spec.fc1_rows()));
  BLOCKSCALE_RETURN_IF_ERROR(SizeIs("b2", weights.b2.size(), biases * spec.hidden));
  return std::unique_ptr<LayerWeights>(std::make_unique<Stacked>(spec, std::move(weights)));
}

}  // namespace blockscale
