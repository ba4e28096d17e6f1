// blockscale validate: a backend against the oracle, case by case.

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "backends/all.h"
#include "backends/reference/reference.h"
#include "base/status.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "verify/moe_candidate.h"
#include "verify/moe_export.h"

namespace blockscale::cli {
namespace {

struct Flags {
  std::string suite = "smoke";
  std::string activation = "swiglu";
  std::string backend = "cpu";
  std::string one_case;
  std::string output;
  std::string export_to;
  std::string candidate;
  uint64_t seed = 1;
  bool require_situ = false;
  bool json = false;
  bool quiet = false;
};

using Json = nlohmann::ordered_json;

// JSON has no infinity.
Json Number(double x) { return std::isfinite(x) ? Json(x) : Json(x > 0 ? "inf" : "nan"); }

Json ToJson(const CaseResult& result) {
  const Comparison& c = result.comparison;
  return {{"case", ToString(result.moe_case)},
          {"status", NameOf(result.status)},
          {"message", result.message},
          {"backend", result.info.backend},
          {"kernel", result.info.kernel},
          {"local_slots", result.info.local_slots},
          {"error_over_bound", Number(c.worst)},
          {"at", {c.token, c.column}},
          {"got", Number(c.got)},
          {"expected", {Number(c.low), Number(c.value), Number(c.high)}},
          {"nrmse", c.nrmse},
          {"cosine", c.cosine},
          {"non_finite_rows", c.broken_rows},
          {"seconds", result.seconds}};
}

Json ToJson(const Flags& flags, const std::vector<CaseResult>& results,
            const std::map<CaseStatus, size_t>& counts) {
  Json cases = Json::array(), summary;
  for (const CaseResult& result : results) cases.push_back(ToJson(result));
  for (const CaseStatus status : AllCaseStatus()) {
    const auto found = counts.find(status);
    summary[std::string(NameOf(status))] = found == counts.end() ? 0 : found->second;
  }
  return {{"suite", flags.one_case.empty() ? flags.suite : "case"},
          {"activation", flags.activation},
          {"backend", flags.candidate.empty() ? flags.backend : flags.candidate},
          {"seed", flags.seed},
          {"cases", std::move(cases)},
          {"summary", std::move(summary)}};
}

void PrintCase(const CaseResult& result) {
  const Comparison& c = result.comparison;
  fmt::print("{:<8} ", NameOf(result.status));
  if (result.status == CaseStatus::kPassed)
    fmt::print("{:5.2f} {:8.1e} {:10.8f} ", c.worst, c.nrmse, c.cosine);
  fmt::print("{}\n", ToString(result.moe_case));
  if (!result.message.empty()) fmt::print("         {}\n", OneLine(result.message));
}

Result<std::vector<MoeCase>> Cases(const Flags& flags) {
  if (!flags.one_case.empty()) {
    BLOCKSCALE_ASSIGN_OR_RETURN(const MoeCase one, ParseMoeCase(flags.one_case));
    return std::vector<MoeCase>{one};
  }
  BLOCKSCALE_ASSIGN_OR_RETURN(const Activation activation, ParseActivation(flags.activation));
  BLOCKSCALE_RETURN_IF_ERROR(ValidateActivation(activation, 1));
  return CasesOf(*ParseSuite(flags.suite), activation, flags.seed);
}

bool Accepted(const Flags& flags, const std::map<CaseStatus, size_t>& counts) {
  const auto count = [&](CaseStatus status) {
    const auto found = counts.find(status);
    return found == counts.end() ? 0 : found->second;
  };
  if (count(CaseStatus::kFailed) > 0) return false;
  if (count(CaseStatus::kRefused) > 0) return false;
  return !flags.require_situ || count(CaseStatus::kMissingActivation) == 0;
}

Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << "\n";
  file.close();
  return file ? OkStatus() : InvalidInput("cannot write {}", path);
}

int Export(const Flags& flags, const std::vector<MoeCase>& cases) {
  Progress progress("exporting", flags.quiet);
  const Status exported = ExportCases(PosixFileSystem(), flags.export_to, cases, [&](size_t done) {
    progress.Count(done, cases.size(), "cases");
  });
  progress.Done();
  if (!exported.ok()) return Fail(exported);
  if (!flags.quiet)
    fmt::print("{}: {} cases; judge their outputs with the same flags and --candidate\n",
               flags.export_to, cases.size());
  return kOk;
}

// Whoever computes the outputs: a backend here, or somebody elsewhere.
Result<std::vector<CaseResult>> Judge(const Flags& flags, const std::vector<MoeCase>& cases,
                                      const std::function<void(const CaseResult&)>& done) {
  const auto oracle = MakeReferenceOracle();
  if (!flags.candidate.empty())
    return JudgeCandidate(PosixFileSystem(), flags.candidate, cases, *oracle, done);
  BLOCKSCALE_ASSIGN_OR_RETURN(const auto backend, BackendNamed(flags.backend));
  return RunSuite(cases, *backend, *oracle, done);
}

int Validate(const Flags& flags) {
  const auto backend = BackendNamed(flags.backend);
  if (!backend.ok()) return Fail(backend.status());
  const auto cases = Cases(flags);
  if (!cases.ok()) return Fail(cases.status());
  if (!flags.export_to.empty()) return Export(flags, *cases);
  const bool text = !flags.json && !flags.quiet;
  if (text) fmt::print("status   error/bound nrmse cosine   case\n");
  std::map<CaseStatus, size_t> counts;
  Progress progress("validating", flags.quiet);
  size_t finished = 0;
  const auto judged = Judge(flags, *cases, [&](const CaseResult& result) {
    ++counts[result.status];
    if (text) PrintCase(result);
    progress.Count(++finished, cases->size(), "cases");
  });
  progress.Done();
  if (!judged.ok()) return Fail(judged.status());
  const std::vector<CaseResult>& results = *judged;
  const std::string json = ToJson(flags, results, counts).dump(2);
  if (!flags.output.empty()) {
    const Status written = WriteFile(flags.output, json);
    if (!written.ok()) return Fail(written);
  }
  if (flags.json) fmt::print("{}\n", json);
  if (text) {
    fmt::print("{} cases on {}", results.size(),
               flags.candidate.empty() ? flags.backend : flags.candidate);
    for (const auto& [status, count] : counts) fmt::print(", {} {}", count, NameOf(status));
    fmt::print("\n");
  }
  return Accepted(flags, counts) ? kOk : kSaysNo;
}

}  // namespace

Command AddValidate(CLI::App& root) {
  auto flags = std::make_shared<Flags>();
  CLI::App* app = root.add_subcommand(
      "validate", "A backend against the double-precision oracle; exit 1 if any case fails");
  app->add_option("--suite", flags->suite, "smoke: small, every scheme; real: Kimi-K3's sizes")
      ->check(CLI::IsMember({"smoke", "real", "all"}))
      ->capture_default_str();
  app->add_option("--activation", flags->activation,
                  "swiglu, situ, swiglu-oai, ..., with parameters: \"situ(gate_beta=4)\"")
      ->capture_default_str();
  app->add_option("--backend", flags->backend, "cpu or reference")->capture_default_str();
  app->add_option("--case", flags->one_case, "One case, as the report spells it");
  app->add_option("--seed", flags->seed, "Of weights, inputs and routing")->capture_default_str();
  app->add_option("--output", flags->output, "Write the result to this file as JSON");
  auto* candidate = app->add_option("--candidate", flags->candidate,
                                    "Judge this safetensors file of outputs, made elsewhere");
  app->add_option("--export", flags->export_to,
                  "Write the cases to this folder, for a candidate, and run nothing")
      ->excludes(candidate);
  app->add_flag("--require-situ", flags->require_situ,
                "A backend without the activation fails instead of being counted");
  app->add_flag("--json", flags->json, "Print the result as JSON");
  app->add_flag("--quiet", flags->quiet, "Print errors only");
  return {app, [flags] { return Validate(*flags); }};
}

}  // namespace blockscale::cli
