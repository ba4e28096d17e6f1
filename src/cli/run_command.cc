// blockscale run: one layer of a checkpoint on some tokens.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "backends/run_layer.h"
#include "base/status.h"
#include "cli/command.h"

namespace blockscale::cli {
namespace {

struct Flags {
  RunLayerOptions options;
  bool json = false;
  bool quiet = false;
};

void PrintText(const Flags& flags, const RunLayerReport& report) {
  fmt::print(
      "{}\n{} tokens on {} ({}): {} experts read in {:.2f} s, {:.1f} MiB prepared, run in "
      "{:.1f} ms\nwrote {}\n",
      ToString(report.spec), report.tokens, report.info.backend, report.info.kernel,
      report.experts_read, report.load_seconds,
      static_cast<double>(report.prepared_bytes) / (1 << 20), report.run_seconds * 1e3,
      flags.options.output);
  if (report.relative_rmse)
    fmt::print("relative RMSE to {}: {:.4g} %\n", flags.options.compare,
               100 * *report.relative_rmse);
}

int Run(const Flags& flags) {
  if (flags.options.tokens.empty() == (flags.options.random == 0))
    return Fail(InvalidInput("give --tokens FILE or --random COUNT, one of them"));
  const auto report = RunLayer(PosixFileSystem(), flags.options);
  if (!report.ok()) return Fail(report.status());
  if (flags.json) {
    nlohmann::ordered_json json = {
        {"spec", ToString(report->spec)},       {"tokens", report->tokens},
        {"experts_read", report->experts_read}, {"prepared_bytes", report->prepared_bytes},
        {"load_seconds", report->load_seconds}, {"run_seconds", report->run_seconds},
        {"backend", report->info.backend},      {"kernel", report->info.kernel},
        {"output", flags.options.output}};
    if (report->relative_rmse) json["relative_rmse"] = *report->relative_rmse;
    fmt::print("{}\n", json.dump(2));
  } else if (!flags.quiet) {
    PrintText(flags, *report);
  }
  return kOk;
}

}  // namespace

Command AddRun(CLI::App& root) {
  auto flags = std::make_shared<Flags>();
  RunLayerOptions& options = flags->options;
  CLI::App* app = root.add_subcommand("run", "One MoE layer of a checkpoint on some tokens");
  app->add_option("--checkpoint", options.checkpoint, "Folder of the checkpoint")->required();
  app->add_option("--layer", options.layer, "Which layer")->required();
  app->add_option("--tokens", options.tokens,
                  "safetensors file with hidden_states, topk_ids and topk_weights");
  app->add_option("--random", options.random, "Make up this many tokens and their routing")
      ->check(CLI::Range(1, 65536));
  app->add_option("--seed", options.seed, "Of made-up tokens")->capture_default_str();
  app->add_option("--output", options.output, "safetensors file to write")->required();
  app->add_option("--compare", options.compare,
                  "The output of another run of the same tokens: how far is this one from it?");
  app->add_option("--backend", options.backend, "cpu or reference")->capture_default_str();
  app->add_flag("--experts-on-disk", options.experts_on_disk,
                "Read only the experts that the tokens chose");
  app->add_flag("--json", flags->json, "Print the result as JSON");
  app->add_flag("--quiet", flags->quiet, "Print errors only");
  return {app, [flags] { return Run(*flags); }};
}

}  // namespace blockscale::cli
