// blockscale diff: two checkpoints, tensor by tensor.

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "blockscale/diff.h"
#include "cli/command.h"
#include "cli/progress.h"

namespace blockscale::cli {
namespace {

struct Flags {
  DiffOptions options;
  bool json = false;
  bool quiet = false;
};

void PrintJson(const DiffReport& report) {
  nlohmann::ordered_json differences = nlohmann::ordered_json::array();
  for (const TensorDifference& one : report.differences)
    differences.push_back({{"name", one.name},
                           {"kind", one.kind},
                           {"a", one.a},
                           {"b", one.b},
                           {"differing", one.differing},
                           {"relative_rmse", one.relative_rmse},
                           {"largest", one.largest}});
  const nlohmann::ordered_json json = {{"compared", report.compared},
                                       {"same", report.same},
                                       {"differences", std::move(differences)}};
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void PrintText(const DiffReport& report) {
  for (const TensorDifference& one : report.differences) {
    fmt::print("{:<10} {}", one.kind, OneLine(one.name));
    if (!one.a.empty()) fmt::print("\n           a: {}", OneLine(one.a));
    if (!one.b.empty()) fmt::print("\n           b: {}", OneLine(one.b));
    if (one.kind == "values")
      fmt::print("\n           {} elements differ, relative RMSE {:.4g} %, at most {:.6g}",
                 one.differing, 100 * one.relative_rmse, one.largest);
    fmt::print("\n");
  }
  fmt::print("{} compared, {} the same, {} differences\n", report.compared, report.same,
             report.differences.size());
}

int Diff(const Flags& flags) {
  Progress progress("comparing", flags.quiet);
  DiffOptions options = flags.options;
  options.progress = [&](uint64_t done, uint64_t total) {
    progress.Count(done, total, "matrices");
  };
  const Result<DiffReport> report = DiffCheckpoints(options);
  progress.Done();
  if (!report.ok()) return Fail(report.status());
  if (flags.json)
    PrintJson(*report);
  else if (!flags.quiet)
    PrintText(*report);
  return report->differences.empty() ? kOk : kSaysNo;
}

}  // namespace

Command AddDiff(CLI::App& root) {
  auto flags = std::make_shared<Flags>();
  CLI::App* app = root.add_subcommand(
      "diff", "Which tensors differ between two checkpoints, and by how much; exit 1 if any does");
  app->add_option("A", flags->options.a, "Folder of a checkpoint")->required();
  app->add_option("B", flags->options.b, "Folder of another")->required();
  app->add_option("--threads", flags->options.threads, "Threads; 0 for as many as cores")
      ->check(CLI::Range(0, 256))
      ->default_str("0");
  app->add_flag("--json", flags->json, "Print the result as JSON");
  app->add_flag("--quiet", flags->quiet, "Print errors only");
  return {app, [flags] { return Diff(*flags); }};
}

}  // namespace blockscale::cli
