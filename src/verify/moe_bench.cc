#include "verify/moe_bench.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <set>

#include "base/status.h"
#include "verify/moe_case.h"

namespace blockscale {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kLeastRuns = 5;

// Distinct local experts for each token: turn by turn for one token, else drawn.
std::vector<int32_t> ChooseIds(const MoeSpec& spec, size_t tokens, size_t* turn,
                               std::mt19937_64* random) {
  std::vector<int32_t> local(spec.local_experts());
  std::iota(local.begin(), local.end(), static_cast<int32_t>(spec.first_expert()));
  std::vector<int32_t> ids;
  for (size_t t = 0; t < tokens; ++t) {
    if (tokens == 1) {
      for (uint32_t k = 0; k < spec.top_k; ++k) ids.push_back(local[(*turn)++ % local.size()]);
      continue;
    }
    for (uint32_t k = 0; k < spec.top_k; ++k) {
      std::swap(local[k], local[k + (*random)() % (local.size() - k)]);
      ids.push_back(local[k]);
    }
  }
  return ids;
}

double PackedBytes(const MoeSpec& spec) {
  const QuantSpec quant = spec.weight_spec();
  const auto bytes = [&](uint64_t rows, uint64_t columns) {
    return static_cast<double>(rows * quant.row_bytes(columns) + quant.grid_rows(rows) *
                                                                     quant.grid_columns(columns) *
                                                                     quant.scale_bytes());
  };
  return bytes(spec.fc1_rows(), spec.hidden) + bytes(spec.hidden, spec.local_intermediate());
}

Result<BenchPoint> BenchTokens(const MoeSpec& spec, const PreparedLayer& layer, size_t tokens,
                               const BenchOptions& options) {
  MoeCase moe_case{spec, tokens, CaseRouting::kUniform, CaseRows::kFinite, options.seed};
  CaseData data = MakeCaseData(moe_case);
  std::vector<std::byte> output(tokens * OutputRowBytes(spec));
  std::mt19937_64 random(options.seed);
  std::vector<double> seconds, bytes_rate;
  BenchPoint point{.tokens = tokens};
  size_t turn = 0;
  double experts = 0, total = 0;
  const double slots = static_cast<double>(tokens) * spec.top_k;
  for (size_t run = 0; run <= kLeastRuns || total < options.seconds; ++run) {
    data.ids = ChooseIds(spec, tokens, &turn, &random);
    experts = static_cast<double>(std::set<int32_t>(data.ids.begin(), data.ids.end()).size());
    const auto start = Clock::now();
    BLOCKSCALE_ASSIGN_OR_RETURN(point.info, layer.Run(data.call(), output.data()));
    const double taken = std::chrono::duration<double>(Clock::now() - start).count();
    if (run == 0) continue;  // first touch of buffers
    total += taken;
    seconds.push_back(taken);
    bytes_rate.push_back(experts * PackedBytes(spec) / taken);
  }
  std::sort(seconds.begin(), seconds.end());
  std::sort(bytes_rate.begin(), bytes_rate.end());
  point.runs = seconds.size();
  point.seconds = seconds[seconds.size() / 2];
  point.best_seconds = seconds.front();
  point.slots_per_expert = slots / experts;
  point.bytes_per_second = bytes_rate[bytes_rate.size() / 2];
  point.flops_per_second = (spec.activation.gated() ? 6.0 : 4.0) * spec.hidden *
                           spec.local_intermediate() * slots / point.seconds;
  return point;
}

}  // namespace

Result<std::vector<BenchPoint>> BenchLayer(const MoeSpec& spec, const Backend& backend,
                                           const LayerWeights& weights,
                                           const BenchOptions& options) {
  if (spec.top_k > spec.local_experts())
    return InvalidInput(
        "top-k is {} and the rank has {} experts; bench gives every slot a local one: "
        "use a smaller ep",
        spec.top_k, spec.local_experts());
  BLOCKSCALE_RETURN_IF_ERROR(backend.Supports(spec));
  BLOCKSCALE_ASSIGN_OR_RETURN(const auto layer, backend.Prepare(spec, weights));
  std::vector<BenchPoint> points;
  for (const size_t tokens : options.tokens) {
    BLOCKSCALE_ASSIGN_OR_RETURN(BenchPoint point, BenchTokens(spec, *layer, tokens, options));
    points.push_back(std::move(point));
  }
  return points;
}

}  // namespace blockscale
