// blockscale check: would a runtime load this the way it is meant?

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "runtime/loading_contract.h"

namespace blockscale::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct Flags {
  std::string folder;
  Runtime runtime = Runtime::kVllm;
  uint64_t tp = 1;
  bool json = false;
};

OrderedJson ToJson(const ContractReport& report) {
  OrderedJson classes = OrderedJson::array(), findings = OrderedJson::array();
  for (const ModuleClass& entry : report.classes)
    classes.push_back({{"module", entry.group},
                       {"class", entry.class_name},
                       {"method", entry.method},
                       {"count", entry.modules},
                       {"parameters_per_rank", entry.parameters}});
  for (const ContractFinding& finding : report.findings)
    findings.push_back({{"severity", finding.error ? "error" : "warning"},
                        {"object", finding.object},
                        {"message", finding.message}});
  OrderedJson scales = {{"count", report.scales},
                        {"exactly_one", report.unit_scales},
                        {"smallest", report.smallest_scale},
                        {"largest", report.largest_scale}};
  if (report.runtime == Runtime::kVllmKunlun) {
    scales["smallest_in_memory"] = 127 * report.smallest_scale;
    scales["largest_in_memory"] = 127 * report.largest_scale;
  }
  return {{"runtime", NameOf(report.runtime)}, {"tp", report.tp},
          {"loads_as_meant", report.ok()},     {"modules", std::move(classes)},
          {"scales", std::move(scales)},       {"findings", std::move(findings)}};
}

void PrintScales(const ContractReport& report) {
  if (report.scales == 0) return;
  fmt::print("row scales    {} on disk, from {:.4g} to {:.4g}\n", report.scales,
             report.smallest_scale, report.largest_scale);
  if (report.unit_scales > 0)
    fmt::print("exactly 1     {} of them, as rows of zeros have it\n", report.unit_scales);
  if (report.runtime == Runtime::kVllmKunlun)
    fmt::print("in memory     scale * 127 = absmax of the row, from {:.4g} to {:.4g}\n",
               127 * report.smallest_scale, 127 * report.largest_scale);
}

void Print(const ContractReport& report) {
  fmt::print("runtime {}, tensor parallelism {}\n", NameOf(report.runtime), report.tp);
  for (const ModuleClass& entry : report.classes) {
    fmt::print("{:<24} x{:<4} {} -> {}\n", entry.group, entry.modules, entry.class_name,
               entry.method);
    fmt::print("{:<30} {}\n", "", fmt::join(entry.parameters, ", "));
  }
  PrintScales(report);
  for (const ContractFinding& finding : report.findings)
    fmt::print("{:<8} {}: {}\n", finding.error ? "ERROR" : "warning", finding.object,
               finding.message);
  fmt::print("{}\n", report.ok() ? "Loads as it is meant" : "Would NOT load as it is meant");
}

int Check(const Flags& flags) {
  const Result<Checkpoint> checkpoint = Checkpoint::Open(PosixFileSystem(), flags.folder);
  if (!checkpoint.ok()) return Fail(checkpoint.status());
  const Result<ContractReport> report = CheckLoading(*checkpoint, flags.runtime, flags.tp);
  if (!report.ok()) return Fail(report.status());
  if (flags.json)
    fmt::print("{}\n", ToJson(*report).dump(2));
  else
    Print(*report);
  return report->ok() ? kOk : kSaysNo;
}

}  // namespace

Command AddCheck(CLI::App& root) {
  auto flags = std::make_shared<Flags>();
  CLI::App* app =
      root.add_subcommand("check", "Say whether a runtime would load a checkpoint as meant");
  app->add_option("dir", flags->folder, "Folder of the checkpoint")->required();
  std::vector<std::pair<std::string, Runtime>> runtimes;
  for (const Runtime runtime : AllRuntime()) runtimes.emplace_back(NameOf(runtime), runtime);
  AddChoice(app, "--runtime", flags->runtime, runtimes, "The runtime")->required();
  app->add_option("--tp", flags->tp, "Tensor-parallel ranks")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app->add_flag("--json", flags->json, "Print JSON");
  return {app, [flags] { return Check(*flags); }};
}

}  // namespace blockscale::cli
