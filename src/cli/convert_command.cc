// blockscale convert: any scheme and spelling to any other.

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>

#include "blockscale/convert.h"
#include "blockscale/verify.h"
#include "cli/command.h"
#include "cli/failure_lines.h"
#include "cli/progress.h"
#include "cli/recipe_flags.h"

namespace blockscale::cli {
namespace {

std::atomic<bool> stop_requested = false;

void RequestStop(int) { stop_requested = true; }

struct Flags {
  ConvertOptions options;
  RecipeFlags recipe;
  bool dry_run = false;
  bool compare = false;
  bool verify = false;
  bool json = false;
  bool quiet = false;
};

double Gib(uint64_t bytes) { return static_cast<double>(bytes) / (uint64_t{1} << 30); }

nlohmann::ordered_json PlanJson(const ConvertPlanSummary& plan) {
  return {{"dialect", plan.dialect},
          {"warnings", plan.warnings},
          {"matrices", plan.matrices},
          {"tensors_kept", plan.kept_tensors},
          {"source_shards", plan.source_shards},
          {"output_shards", plan.output_shards},
          {"source_bytes", plan.source_bytes},
          {"output_bytes", plan.output_bytes},
          {"file_bytes", plan.file_bytes},
          {"free_bytes", plan.free_bytes},
          {"fits", plan.fits}};
}

// "int8-channel, range 127", "experts: mxfp4, attention: fp8-channel (absmax)".
std::string RecipeText(const Flags& flags) {
  std::string text;
  for (const RecipeRule& rule : flags.options.recipe.rules) {
    if (!text.empty()) text += ", ";
    if (!rule.tensor_class.empty()) text += rule.tensor_class + ": ";
    if (!rule.match.empty()) text += rule.match + ": ";
    text += rule.scheme;
    if (!rule.scale_rule.empty()) text += " (" + rule.scale_rule + ")";
    if (rule.scheme == "int8-channel")
      text += flags.options.range == Int8Range::k127 ? ", range 127" : ", range 128";
  }
  return text;
}

void PrintWarnings(const ConvertPlanSummary& plan) {
  for (const std::string& warning : plan.warnings)
    std::fputs(fmt::format("blockscale: warning: {}\n", warning).c_str(), stderr);
}

void PrintPlan(const Flags& flags, const ConvertPlanSummary& plan) {
  fmt::print("source        {}\n", flags.options.source);
  fmt::print("output        {}\n", flags.options.output);
  fmt::print("recipe        {}\n", RecipeText(flags));
  fmt::print("dialect       {}\n", plan.dialect);
  fmt::print("matrices      {} to convert, {} tensors kept as they are\n", plan.matrices,
             plan.kept_tensors);
  fmt::print("shards        {} to read, {} to write\n", plan.source_shards, plan.output_shards);
  fmt::print("source bytes  {} ({:.2f} GiB)\n", plan.source_bytes, Gib(plan.source_bytes));
  fmt::print("output bytes  {} ({:.2f} GiB)\n", plan.output_bytes, Gib(plan.output_bytes));
  fmt::print("free space    {} ({:.2f} GiB): {}\n", plan.free_bytes, Gib(plan.free_bytes),
             plan.fits ? "enough" : "NOT ENOUGH");
}

nlohmann::ordered_json CostsJson(const std::vector<SchemeCost>& costs) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const SchemeCost& cost : costs)
    rows.push_back({{"scheme", cost.scheme},
                    {"scale_rule", cost.scale_rule},
                    {"bytes", cost.bytes},
                    {"relative_rmse", cost.relative_rmse}});
  return rows;
}

void PrintCosts(const std::vector<SchemeCost>& costs) {
  fmt::print("\n{:<14}{:<16}{:>18}{:>16}\n", "scheme", "scale rule", "bytes", "relative RMSE");
  for (const SchemeCost& cost : costs)
    fmt::print("{:<14}{:<16}{:>18}{:>14.3f} %\n", cost.scheme, cost.scale_rule, cost.bytes,
               100 * cost.relative_rmse);
}

int DryRun(const Flags& flags) {
  const Result<ConvertPlanSummary> plan = PlanConversion(flags.options);
  if (!plan.ok()) return Fail(plan.status());
  std::vector<SchemeCost> costs;
  if (flags.compare) {
    Result<std::vector<SchemeCost>> compared = CompareSchemes(flags.options);
    if (!compared.ok()) return Fail(compared.status());
    costs = std::move(*compared);
  }
  PrintWarnings(*plan);
  if (flags.json) {
    nlohmann::ordered_json json = PlanJson(*plan);
    if (flags.compare) json["comparison"] = CostsJson(costs);
    fmt::print("{}\n", json.dump(2));
  } else if (!flags.quiet) {
    PrintPlan(flags, *plan);
    if (flags.compare) PrintCosts(costs);
    fmt::print("Dry run: nothing was written\n");
  }
  return kOk;
}

int VerifyResult(const Flags& flags, nlohmann::ordered_json* json) {
  Progress progress("verifying", flags.quiet);
  VerifyOptions options{.source = flags.options.source,
                        .converted = flags.options.output,
                        .threads = flags.options.threads};
  options.progress = [&](uint64_t done, uint64_t total) {
    progress.Count(done, total, "matrices");
  };
  const Result<VerifyReport> report = VerifyCheckpoint(options);
  progress.Done();
  if (!report.ok()) return Fail(report.status());
  PrintFailures(*report, stderr);
  if (json != nullptr) {
    (*json)["verified"] = report->failures.empty();
  } else {
    fmt::print("Verified: {} matrices and {} kept tensors against the source, {} failures\n",
               report->matrices.size(), report->kept_checked, report->failures.size());
  }
  return report->failures.empty() ? kOk : kSaysNo;
}

void PrintSummary(const Flags& flags, const ConvertSummary& summary) {
  double worst = 0, half_steps = 0;
  uint64_t zero_rows = 0;
  for (const MatrixQuality& matrix : summary.matrices) {
    worst = std::max(worst, matrix.relative_rmse);
    half_steps = std::max(half_steps, matrix.max_half_steps);
    zero_rows += matrix.zero_rows;
  }
  fmt::print("Converted {} matrices in {:.1f} s", summary.matrices.size(), summary.seconds);
  if (summary.shards_reused > 0)
    fmt::print(" ({} shards kept from the earlier run)", summary.shards_reused);
  fmt::print("\nworst relative RMSE {:.4f} %, largest error {:.6f} half steps, {} zero rows\n",
             100 * worst, half_steps, zero_rows);
  fmt::print("report        {}/conversion_report.html\n", flags.options.output);
}

int Convert(const Flags& flags) {
  Flags run = flags;
  std::signal(SIGINT, RequestStop);
  std::signal(SIGTERM, RequestStop);
  run.options.stop = &stop_requested;
  Progress progress("converting", flags.quiet);
  run.options.progress = [&](const ConvertProgress& state) {
    progress.Bytes(state.bytes_done, state.bytes_total);
    if (!state.finished_shard.empty())
      progress.Line(
          fmt::format("{}/{} {}", state.shards_done, state.shards_total, state.finished_shard));
  };
  const Result<ConvertSummary> summary = ConvertCheckpoint(run.options);
  progress.Done();
  if (!summary.ok()) return Fail(summary.status());
  PrintWarnings(summary->plan);
  nlohmann::ordered_json json = PlanJson(summary->plan);
  json["seconds"] = summary->seconds;
  json["shards_reused"] = summary->shards_reused;
  if (!flags.json && !flags.quiet) PrintSummary(flags, *summary);
  int code = kOk;
  if (flags.verify) code = VerifyResult(flags, flags.json || flags.quiet ? &json : nullptr);
  if (code == kError) return code;
  json["complete"] = code == kOk;
  if (flags.json) {
    fmt::print("{}\n", json.dump(2));
  } else if (!flags.quiet) {
    fmt::print("{}\n", code == kOk ? "Complete" : "Converted, but NOT verified: see above");
  }
  return code;
}

int Run(Flags& flags) {
  Result<Recipe> recipe = MakeRecipe(flags.recipe);
  if (!recipe.ok()) return Fail(recipe.status());
  flags.options.recipe = std::move(*recipe);
  return flags.dry_run ? DryRun(flags) : Convert(flags);
}

}  // namespace

Command AddConvert(CLI::App& root) {
  auto flags = std::make_shared<Flags>();
  CLI::App* app = root.add_subcommand(
      "convert", "Convert a checkpoint from any scheme and spelling to any other");
  app->add_option("--source", flags->options.source, "Folder of the checkpoint")->required();
  app->add_option("--output", flags->options.output, "Folder for the result; new or empty")
      ->required();
  AddRecipeFlags(app, &flags->recipe);
  CLI::Option* dry_run =
      app->add_flag("--dry-run", flags->dry_run, "Read headers, print the plan, write nothing");
  app->add_flag("--compare", flags->compare,
                "With --dry-run: what every scheme would cost, from a sample of the real tensors")
      ->needs(dry_run);
  app->add_flag("--resume", flags->options.resume, "Continue a run that was stopped or killed");
  AddChoice<ResumeCheck>(app, "--resume-check", flags->options.resume_check,
                         {{"full", ResumeCheck::kFull}, {"header", ResumeCheck::kHeader}},
                         "How finished shards are checked: 'full' reads them, 'header' does not")
      ->default_str("full");
  app->add_option("--threads", flags->options.threads, "Threads; 0 for as many as cores")
      ->check(CLI::Range(0, 256))
      ->default_str("0");
  app->add_option("--chunk-rows", flags->options.chunk_rows,
                  "Rows of a matrix in one piece of work; 0 to go by size")
      ->check(AtLeast(0))
      ->default_str("0");
  AddChoice<Int8Range>(app, "--int8-range", flags->options.range,
                       {{"127", Int8Range::k127}, {"128", Int8Range::k128}},
                       "'127': absmax/127, codes to +-127; '128': compressed-tensors' absmax/127.5")
      ->default_str("127");
  app->add_flag("--verify", flags->verify, "Verify every matrix against the source afterwards");
  app->add_flag("--json", flags->json, "Print the result as JSON");
  app->add_flag("--quiet", flags->quiet, "Print errors only");
  return {app, [flags] { return Run(*flags); }};
}

}  // namespace blockscale::cli
