#include "convert/compare.h"

#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <cmath>

#include "checkpoint/stored_rows.h"
#include "numeric/block_quant.h"

namespace blockscale {
namespace {

constexpr uint64_t kPieceElements = uint64_t{1} << 16;
constexpr uint64_t kBlockRows = 128;  // whole blocks of fp8-block where the matrix has them

// Some rows of one matrix in FP32.
struct Sample {
  std::vector<float> values;
  uint64_t rows = 0, columns = 0;
  Status status;
};

Sample ReadSample(const Checkpoint& source, const StoredMatrix& matrix) {
  Sample sample{.columns = matrix.columns};
  const uint64_t wanted = std::max<uint64_t>(kBlockRows, kPieceElements / matrix.columns);
  sample.rows = std::min(matrix.rows, wanted / kBlockRows * kBlockRows);
  const Result<GlobalScale> global = ReadGlobalScale(source, matrix);
  if (!global.ok()) return {.status = global.status()};
  StoredRows rows;
  if (const Status status = ReadStoredRows(source, matrix, *global, 0, sample.rows, &rows);
      !status.ok())
    return {.status = status};
  sample.values.resize(sample.rows * sample.columns);
  DecodeRows(
      {matrix.spec, rows.codes.data(), sample.rows, sample.columns, 0, rows.effective.data()},
      sample.values.data());
  for (float& value : sample.values)
    if (!std::isfinite(value)) value = 0;  // the conversion will say so
  return sample;
}

RowsLoss LossOn(const Sample& sample, Scheme scheme, ScaleRule rule) {
  EncodeOptions options{.spec = SpecOf(scheme), .rule = rule};
  const uint64_t columns = sample.columns;
  const uint64_t group = options.spec.block_rows == 1 ? options.spec.block_columns : 0;
  if (group != 0 && columns % group != 0) return {};
  const float amax = LargestMagnitude(sample.values.data(), sample.values.size());
  if (scheme == Scheme::kNvfp4)
    options.global = Nvfp4Global(amax, rule, GlobalScale::Kind::kMultiplier);
  if (scheme == Scheme::kFp8Tensor) options.global = TensorScale(amax, rule);
  const size_t grid = options.spec.grid_rows(sample.rows) * options.spec.grid_columns(columns);
  std::vector<std::byte> codes(sample.rows * options.spec.row_bytes(columns));
  std::vector<std::byte> scales(grid * options.spec.scale_bytes());
  std::vector<float> effective(grid), decoded(sample.values.size());
  EncodeRows(options, sample.values.data(), sample.rows, columns,
             {codes.data(), scales.data(), effective.data()});
  const QuantRows rows = {options.spec, codes.data(), sample.rows, columns, 0, effective.data()};
  DecodeRows(rows, decoded.data());
  return MeasureRows(rows, sample.values.data(), decoded.data());
}

uint64_t BytesOf(const QuantSpec& spec, uint64_t rows, uint64_t columns) {
  return rows * spec.row_bytes(columns) +
         spec.grid_rows(rows) * spec.grid_columns(columns) * spec.scale_bytes() +
         (spec.has_global() ? sizeof(float) : 0);
}

// Evenly spread, the first and the last among them.
std::vector<const StoredMatrix*> Choose(const ConversionPlan& plan, size_t count) {
  std::vector<const StoredMatrix*> all;
  for (const auto& matrix : plan.matrices)
    for (const StoredMatrix* source : matrix->sources) all.push_back(source);
  std::vector<const StoredMatrix*> chosen;
  count = std::min(count, all.size());
  for (size_t i = 0; i < count; ++i)
    chosen.push_back(all[count == 1 ? 0 : i * (all.size() - 1) / (count - 1)]);
  return chosen;
}

}  // namespace

Result<std::vector<SchemeCost>> CompareOnSample(const Checkpoint& source,
                                                const ConversionPlan& plan, size_t matrices) {
  const std::vector<const StoredMatrix*> chosen = Choose(plan, matrices);
  std::vector<Sample> samples(chosen.size());
  oneapi::tbb::parallel_for(size_t{0}, chosen.size(),
                            [&](size_t i) { samples[i] = ReadSample(source, *chosen[i]); });
  for (const Sample& sample : samples) BLOCKSCALE_RETURN_IF_ERROR(sample.status);
  std::vector<SchemeCost> costs;
  for (const Scheme scheme : AllScheme())
    for (const ScaleRule rule : AllScaleRule())
      if (RuleFits(rule, scheme) && rule != ScaleRule::kExactCast)
        costs.push_back({.scheme = std::string(NameOf(scheme)),
                         .scale_rule = HasScales(scheme) ? std::string(NameOf(rule)) : ""});
  oneapi::tbb::parallel_for(size_t{0}, costs.size(), [&](size_t i) {
    SchemeCost& cost = costs[i];
    const Scheme scheme = *ParseScheme(cost.scheme);
    const ScaleRule rule =
        cost.scale_rule.empty() ? ScaleRule::kAbsmax : *ParseScaleRule(cost.scale_rule);
    RowsLoss loss;
    for (const Sample& sample : samples) loss.Add(LossOn(sample, scheme, rule));
    if (loss.sum_squares > 0)
      cost.relative_rmse = std::sqrt(loss.sum_squared_errors / loss.sum_squares);
    for (const auto& matrix : plan.matrices)
      cost.bytes += BytesOf(SpecOf(scheme), matrix->rows, matrix->columns);
  });
  return costs;
}

}  // namespace blockscale
