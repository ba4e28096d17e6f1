// blockscale verify: a converted checkpoint against its source.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/status.h"
#include "blockscale/verify.h"
#include "blockscale/version.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/index.h"
#include "checkpoint/output_file.h"
#include "cli/command.h"
#include "cli/failure_lines.h"
#include "cli/progress.h"
#include "verify/quality_page.h"
#include "verify/quality_report.h"

namespace blockscale::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct Flags {
  VerifyOptions options;
  bool all = false;
  std::string report, html;
  bool json = false;
  bool quiet = false;
};

std::string ReportText(const Flags& flags, const VerifyReport& report) {
  OrderedJson failures = OrderedJson::array();
  for (const VerifyFailure& failure : report.failures)
    failures.push_back({{"object", failure.object}, {"message", failure.message}});
  const OrderedJson head = {{"format", "blockscale-verify-report"},
                            {"version", 1},
                            {"tool", Version()},
                            {"source", flags.options.source},
                            {"converted", flags.options.converted},
                            {"holds", report.failures.empty()},
                            {"matrices_total", report.matrices_total},
                            {"matrices_checked", report.matrices.size()},
                            {"kept_tensors_compared", report.kept_checked},
                            {"failures", std::move(failures)},
                            {"summary", QualitySummaryJson(report.matrices)}};
  return WithMatrices(head, report.matrices);
}

std::string PageText(const Flags& flags, const VerifyReport& report) {
  const bool sample = report.matrices.size() < report.matrices_total;
  QualityPage page{.title = !report.failures.empty() ? "Verification: failures"
                            : sample ? fmt::format("Verification: {} of {} matrices, which hold",
                                                   report.matrices.size(), report.matrices_total)
                                     : "Verification: everything holds",
                   .matrices = &report.matrices};
  page.facts = {
      {"Source", flags.options.source},
      {"Converted", flags.options.converted},
      {"Matrices checked", fmt::format("{} of {}", report.matrices.size(), report.matrices_total)},
      {"Kept tensors compared", std::to_string(report.kept_checked)},
      {"Tool", std::string("blockscale ") + Version()}};
  for (const VerifyFailure& failure : report.failures)
    page.alerts.emplace_back(failure.object, failure.message);
  return RenderQualityPage(page);
}

// Where a report goes: its folder without links or "..", and its name there.
struct Target {
  std::filesystem::path folder, name;
};

// Names that no report may take from what is there.
bool BelongsToCheckpoint(const std::string& name) {
  return name == kConfigFileName || name == kIndexFileName || name.ends_with(".safetensors") ||
         name.starts_with("conversion_");
}

// Decided before the long work begins. The source is never written to, not even in a subfolder.
Result<Target> TargetOf(const std::string& path, const std::string& source) {
  std::error_code error;
  const std::filesystem::path file = std::filesystem::absolute(path, error);
  // The last "/." is for the slash that a ".." may leave at the end.
  Target target{std::filesystem::weakly_canonical(file.parent_path(), error) / ".",
                file.filename()};
  target.folder = target.folder.parent_path();
  if (error) return IoError("resolve", path, error.value());
  if (target.name.empty() || std::filesystem::is_directory(file, error))
    return InvalidInput("{}: is a folder; give the name of a file", path);
  const std::filesystem::path root = std::filesystem::weakly_canonical(source, error);
  if (std::mismatch(root.begin(), root.end(), target.folder.begin(), target.folder.end()).first ==
      root.end())
    return Refused("{}: lies in the source, which is never written to; choose another place", path);
  // What the source has under this name the converted checkpoint has too.
  if ((BelongsToCheckpoint(target.name.string()) || std::filesystem::exists(root / target.name)) &&
      std::filesystem::exists(file, error))
    return Refused("{}: is a part of a checkpoint; give the report another name", path);
  return target;
}

Status WriteOut(const Target& target, const std::string& text) {
  return WriteFileAtomically(PosixFileSystem(), target.folder.string(), target.name.string(), text);
}

void PrintSummary(const VerifyReport& report) {
  const OrderedJson summary = QualitySummaryJson(report.matrices);
  fmt::print("matrices       {} checked of {}\n", report.matrices.size(), report.matrices_total);
  fmt::print("kept tensors   {} compared bit for bit\n", report.kept_checked);
  if (!report.matrices.empty()) {
    const OrderedJson& rmse = summary.at("relative_rmse");
    fmt::print("relative RMSE  median {:.4f} %, worst {:.4f} % ({})\n",
               100 * rmse.at("median").get<double>(), 100 * rmse.at("max").get<double>(),
               rmse.at("worst").get<std::string>());
    fmt::print("largest error  {:.6f} half steps (limit 1.000010; 1.000015 for clipped codes)\n",
               summary.at("max_half_steps").get<double>());
    fmt::print("zero rows      {}, clipped codes {}\n", summary.at("zero_rows").get<uint64_t>(),
               summary.at("clipped").get<uint64_t>());
  }
  PrintFailures(report, stdout);
  fmt::print("{}\n", report.failures.empty() ? "Everything holds" : "NOT everything holds");
}

int Verify(const Flags& flags) {
  std::optional<Target> report_target, html_target;
  for (const auto& [path, target] :
       {std::pair(&flags.report, &report_target), std::pair(&flags.html, &html_target)}) {
    if (path->empty()) continue;
    Result<Target> resolved = TargetOf(*path, flags.options.source);
    if (!resolved.ok()) return Fail(resolved.status());
    *target = std::move(*resolved);
  }
  if (report_target && html_target && report_target->folder == html_target->folder &&
      report_target->name == html_target->name)
    return Fail(InvalidInput("--report and --html both name {}; give each its own", flags.html));
  Progress progress("verifying", flags.quiet);
  VerifyOptions options = flags.options;
  options.progress = [&](uint64_t done, uint64_t total) {
    progress.Count(done, total, "matrices");
  };
  const Result<VerifyReport> report = VerifyCheckpoint(options);
  progress.Done();
  if (!report.ok()) return Fail(report.status());
  const std::string text = ReportText(flags, *report);
  if (report_target)
    if (const Status status = WriteOut(*report_target, text); !status.ok()) return Fail(status);
  if (html_target)
    if (const Status status = WriteOut(*html_target, PageText(flags, *report)); !status.ok())
      return Fail(status);
  if (flags.json)
    fmt::print("{}", text);
  else if (!flags.quiet)
    PrintSummary(*report);
  else
    PrintFailures(*report, stderr);
  return report->failures.empty() ? kOk : kSaysNo;
}

}  // namespace

Command AddVerify(CLI::App& root) {
  auto flags = std::make_shared<Flags>();
  CLI::App* app = root.add_subcommand(
      "verify", "Check a converted checkpoint against its source, element by element");
  app->add_option("--source", flags->options.source, "Folder of the FP8 checkpoint")->required();
  app->add_option("--converted", flags->options.converted, "Folder of the INT8 checkpoint")
      ->required();
  CLI::Option* all = app->add_flag("--all", flags->all, "Every matrix (the default)");
  app->add_option("--sample", flags->options.sample, "Only so many matrices, evenly spread")
      ->check(AtLeast(1))
      ->excludes(all);
  app->add_option("--match", flags->options.match, "Only matrices whose name this regex finds");
  app->add_option("--report", flags->report, "Write a JSON report to this file");
  app->add_option("--html", flags->html, "Write a page to this file");
  app->add_option("--threads", flags->options.threads, "Threads; 0 for as many as cores")
      ->check(CLI::Range(0, 256))
      ->default_str("0");
  app->add_flag("--json", flags->json, "Print the report as JSON");
  app->add_flag("--quiet", flags->quiet, "Print errors only");
  return {app, [flags] { return Verify(*flags); }};
}

}  // namespace blockscale::cli
