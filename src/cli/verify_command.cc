// blockscale verify: a converted checkpoint against its source.

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <memory>

#include "blockscale/verify.h"
#include "blockscale/version.h"
#include "checkpoint/output_file.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "verify/quality_page.h"
#include "verify/quality_report.h"

namespace blockscale::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr size_t kFailuresShown = 20;

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
  QualityPage page{.title = report.failures.empty() ? "Verification: everything holds"
                                                    : "Verification: failures",
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

// Writes beside everything else, never into the checkpoint that is being judged as the source.
Status WriteOut(const Flags& flags, const std::string& path, const std::string& text) {
  std::error_code error;
  const std::filesystem::path file = std::filesystem::weakly_canonical(path, error);
  const std::filesystem::path source =
      std::filesystem::weakly_canonical(flags.options.source, error);
  if (file.parent_path() == source)
    return {StatusCode::kRefused, fmt::format("{}: lies in the source, which is never written to; "
                                              "choose another place",
                                              path)};
  FileSystem& files = PosixFileSystem();
  return WriteFileAtomically(files, file.parent_path().string(), file.filename().string(), text);
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
    fmt::print("largest error  {:.6f} half steps (limit 1.00001)\n",
               summary.at("max_half_steps").get<double>());
    fmt::print("zero rows      {}, clipped codes {}\n", summary.at("zero_rows").get<uint64_t>(),
               summary.at("clipped").get<uint64_t>());
  }
  for (size_t i = 0; i < std::min(kFailuresShown, report.failures.size()); ++i)
    fmt::print("FAILED         {}: {}\n", report.failures[i].object, report.failures[i].message);
  if (report.failures.size() > kFailuresShown)
    fmt::print("               and {} more; --report FILE.json has them all\n",
               report.failures.size() - kFailuresShown);
  fmt::print("{}\n", report.failures.empty() ? "Everything holds" : "NOT everything holds");
}

int Verify(const Flags& flags) {
  Progress progress("verifying", flags.quiet);
  VerifyOptions options = flags.options;
  options.progress = [&](uint64_t done, uint64_t total) {
    progress.Count(done, total, "matrices");
  };
  const Result<VerifyReport> report = VerifyCheckpoint(options);
  progress.Done();
  if (!report.ok()) return Fail(report.status());
  const std::string text = ReportText(flags, *report);
  if (!flags.report.empty())
    if (const Status status = WriteOut(flags, flags.report, text); !status.ok())
      return Fail(status);
  if (!flags.html.empty())
    if (const Status status = WriteOut(flags, flags.html, PageText(flags, *report)); !status.ok())
      return Fail(status);
  if (flags.json)
    fmt::print("{}", text);
  else if (!flags.quiet)
    PrintSummary(*report);
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
