#include "backends/run_layer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <set>

#include "backends/all.h"
#include "backends/layer_tokens.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/tensor_file.h"
#include "model/checkpoint_layer.h"

namespace blockscale {
namespace {

constexpr int kRuns = 3;

double Since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Makes a layer of the chosen experts alone and renames them in `ids`; their order stays, and with
// it every sum. A token may choose fewer experts than it has slots when -1 is among them.
std::vector<uint32_t> KeepChosen(MoeSpec* spec, std::vector<int32_t>* ids) {
  std::set<int32_t> chosen(ids->begin(), ids->end());
  chosen.erase(-1);
  // A layer has at least as many experts as slots.
  for (int32_t id = 0; chosen.size() < spec->top_k; ++id) chosen.insert(id);
  const std::vector<uint32_t> kept(chosen.begin(), chosen.end());
  for (int32_t& id : *ids)
    if (id >= 0)
      id = static_cast<int32_t>(
          std::lower_bound(kept.begin(), kept.end(), static_cast<uint32_t>(id)) - kept.begin());
  spec->experts = static_cast<uint32_t>(kept.size());
  return kept;
}

// The largest magnitude over 6 * 448 for nvfp4, as ModelOpt calibrates; a rank's inputs are one
// tensor.
GlobalScale InputGlobal(const std::vector<float>& values) {
  const float amax = LargestMagnitude(values.data(), values.size());
  return Nvfp4Global(std::isfinite(amax) ? amax : 0, ScaleRule::kAbsmax,
                     GlobalScale::Kind::kMultiplier);
}

Result<double> RelativeRmse(FileSystem& files, const RunLayerOptions& options, const MoeSpec& spec,
                            const LayerTokens& tokens, const std::vector<std::byte>& output) {
  BLOCKSCALE_ASSIGN_OR_RETURN(const std::vector<float> other,
                              ReadOutput(files, options.compare, spec, tokens.ids));
  std::vector<float> values(other.size());
  LoadOutput(spec.output, output.data(), values.size(), values.data());
  double difference = 0, size = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    difference += (double{values[i]} - other[i]) * (double{values[i]} - other[i]);
    size += double{other[i]} * other[i];
  }
  return size > 0 ? std::sqrt(difference / size) : difference > 0 ? INFINITY : 0;
}

Status WriteResult(FileSystem& files, const std::string& path, const MoeSpec& spec,
                   const LayerTokens& tokens, const std::vector<std::byte>& output) {
  const uint64_t rows = tokens.ids.size() / spec.top_k;
  return WriteTensorFile(
      files, path,
      {{"output", DType::kBF16, {rows, spec.hidden}, output},
       {"topk_ids", DType::kI32, {rows, spec.top_k}, std::as_bytes(std::span(tokens.ids))},
       {"topk_weights",
        DType::kF32,
        {rows, spec.top_k},
        std::as_bytes(std::span(tokens.weights))}});
}

}  // namespace

Result<RunLayerReport> RunLayer(FileSystem& files, const RunLayerOptions& options) {
  if (files.Exists(options.output))
    return Refused("{} is there; choose another name or remove it", options.output);
  BLOCKSCALE_ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                              Checkpoint::Open(files, options.checkpoint));
  BLOCKSCALE_ASSIGN_OR_RETURN(const CheckpointLayer layer, FindLayer(checkpoint, options.layer));
  BLOCKSCALE_ASSIGN_OR_RETURN(const auto backend, BackendNamed(options.backend));
  BLOCKSCALE_RETURN_IF_ERROR(backend->Supports(layer.spec));
  BLOCKSCALE_ASSIGN_OR_RETURN(const LayerTokens tokens,
                              options.tokens.empty()
                                  ? RandomTokens(layer.spec, options.random, options.seed)
                                  : ReadTokens(files, options.tokens, layer.spec));
  RunLayerReport report{.spec = layer.spec};
  report.tokens = tokens.ids.size() / layer.spec.top_k;
  MoeSpec spec = layer.spec;
  std::vector<int32_t> ids = tokens.ids;
  std::vector<uint32_t> experts(spec.experts);
  std::iota(experts.begin(), experts.end(), 0u);
  if (options.experts_on_disk) experts = KeepChosen(&spec, &ids);
  report.experts_read = experts.size();
  auto start = std::chrono::steady_clock::now();
  const auto weights = MakeCheckpointWeights(checkpoint, layer, std::move(experts));
  BLOCKSCALE_ASSIGN_OR_RETURN(const auto prepared, backend->Prepare(spec, *weights));
  report.load_seconds = Since(start);
  report.prepared_bytes = prepared->bytes();
  const GlobalScale global = InputGlobal(tokens.hidden_states);
  const ScaledRows inputs =
      QuantiseRows(spec.inputs, global, tokens.hidden_states.data(), report.tokens, spec.hidden);
  std::vector<std::byte> output(report.tokens * OutputRowBytes(spec));
  for (int run = 0; run < kRuns; ++run) {
    start = std::chrono::steady_clock::now();
    BLOCKSCALE_ASSIGN_OR_RETURN(
        report.info, prepared->Run({&inputs, ids, tokens.weights, global}, output.data()));
    report.run_seconds = run == 0 ? Since(start) : std::min(report.run_seconds, Since(start));
  }
  if (!options.compare.empty()) {
    BLOCKSCALE_ASSIGN_OR_RETURN(report.relative_rmse,
                                RelativeRmse(files, options, layer.spec, tokens, output));
  }
  BLOCKSCALE_RETURN_IF_ERROR(WriteResult(files, options.output, spec, tokens, output));
  return report;
}

}  // namespace blockscale
