// blockscale bench: a layer's speed beside the machine's limits, from the same run.

#include <fmt/format.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/task_arena.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "backends/all.h"
#include "backends/cpu/probe.h"
#include "base/status.h"
#include "cli/command.h"
#include "cli/layer_flags.h"
#include "verify/moe_bench.h"
#include "verify/moe_case.h"

namespace blockscale::cli {
namespace {

struct Flags {
  LayerFlags layer;
  std::string backend = "cpu";
  BenchOptions options;
  int threads = 0;
  bool json = false;
};

struct Limits {
  double bandwidth = 0;
  double dot_peak = 0;
};

void PrintJson(const MoeSpec& spec, int threads, const Limits& limits,
               const std::vector<BenchPoint>& points) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const BenchPoint& p : points)
    rows.push_back({{"tokens", p.tokens},
                    {"seconds", p.seconds},
                    {"best_seconds", p.best_seconds},
                    {"runs", p.runs},
                    {"slots_per_expert", p.slots_per_expert},
                    {"weight_bytes_per_second", p.bytes_per_second},
                    {"flops_per_second", p.flops_per_second},
                    {"share_of_bandwidth", p.bytes_per_second / limits.bandwidth},
                    {"share_of_dot_peak", p.flops_per_second / limits.dot_peak},
                    {"backend", p.info.backend},
                    {"kernel", p.info.kernel}});
  const nlohmann::ordered_json json = {{"spec", ToString(spec)},
                                       {"threads", threads},
                                       {"read_bytes_per_second", limits.bandwidth},
                                       {"dot_flops_per_second", limits.dot_peak},
                                       {"points", std::move(rows)}};
  fmt::print("{}\n", json.dump(2));
}

void PrintText(const MoeSpec& spec, int threads, const Limits& limits,
               const std::vector<BenchPoint>& points) {
  fmt::print("{}\n{} threads; memory reads {:.1f} GB/s, dot products {:.0f} GFLOP/s\n",
             ToString(spec), threads, limits.bandwidth / 1e9, limits.dot_peak / 1e9);
  fmt::print(
      "tokens slots/expert         ms  weights GB/s  of limit    GFLOP/s  of limit  runs  "
      "kernel\n");
  for (const BenchPoint& p : points)
    fmt::print("{:>6} {:>12.1f} {:>10.3f} {:>13.1f} {:>9.2f} {:>10.1f} {:>9.2f} {:>5}  {}\n",
               p.tokens, p.slots_per_expert, p.seconds * 1e3, p.bytes_per_second / 1e9,
               p.bytes_per_second / limits.bandwidth, p.flops_per_second / 1e9,
               p.flops_per_second / limits.dot_peak, p.runs, p.info.kernel);
}

// The checkpoint's own, or made-up ones of a model's size.
std::unique_ptr<LayerWeights> WeightsOf(const ChosenLayer& layer, uint64_t seed) {
  if (!layer.checkpoint) return MakeCaseWeights(layer.spec, seed, 1);
  std::vector<uint32_t> experts(layer.spec.experts);
  std::iota(experts.begin(), experts.end(), 0u);
  return MakeCheckpointWeights(*layer.checkpoint, *layer.layer, std::move(experts));
}

int Bench(const Flags& flags) {
  const auto layer = ChooseLayer(flags.layer);
  if (!layer.ok()) return Fail(layer.status());
  const MoeSpec& spec = layer->spec;
  const auto backend = BackendNamed(flags.backend);
  if (!backend.ok()) return Fail(backend.status());
  const int threads = flags.threads > 0
                          ? flags.threads
                          : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const auto weights = WeightsOf(*layer, flags.options.seed);
  const oneapi::tbb::global_control control(oneapi::tbb::global_control::max_allowed_parallelism,
                                            static_cast<size_t>(threads));
  const Limits limits{MeasureReadBandwidth(threads), MeasureDotPeak(threads)};
  oneapi::tbb::task_arena arena(threads);
  const auto points =
      arena.execute([&] { return BenchLayer(spec, **backend, *weights, flags.options); });
  if (!points.ok()) return Fail(points.status());
  if (flags.json)
    PrintJson(spec, threads, limits, *points);
  else
    PrintText(spec, threads, limits, *points);
  return kOk;
}

}  // namespace

Command AddBench(CLI::App& root) {
  auto flags = std::make_shared<Flags>();
  CLI::App* app = root.add_subcommand(
      "bench", "A layer's speed beside this machine's limits, measured in the same run");
  AddLayerFlags(app, &flags->layer);
  app->add_option("--tokens", flags->options.tokens, "Batch sizes")
      ->delimiter(',')
      ->check(CLI::Range(1, 65536))
      ->default_str("1,8,32,128");
  app->add_option("--backend", flags->backend, "cpu or reference")->capture_default_str();
  app->add_option("--threads", flags->threads, "Threads; 0 for as many as cores")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  app->add_option("--seconds", flags->options.seconds, "Time for each batch size, at least")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  app->add_option("--seed", flags->options.seed, "Of weights, inputs and routing")
      ->capture_default_str();
  app->add_flag("--json", flags->json, "Print the result as JSON");
  return {app, [flags] { return Bench(*flags); }};
}

}  // namespace blockscale::cli
