#include "convert/report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "blockscale/version.h"
#include "verify/quality_page.h"
#include "verify/quality_report.h"

namespace blockscale {
namespace {

std::string Gigabytes(uint64_t bytes) {
  return fmt::format("{} bytes ({:.2f} GiB)", bytes, static_cast<double>(bytes) / (1 << 30));
}

// "mxfp4 and fp8-channel": what the matrices became.
std::string SchemesText(const std::vector<MatrixQuality>& matrices) {
  std::set<std::string> schemes;
  for (const MatrixQuality& matrix : matrices) schemes.insert(matrix.to);
  return schemes.empty() ? "nothing" : fmt::format("{}", fmt::join(schemes, " and "));
}

}  // namespace

std::string ReportJson(const ReportFacts& facts, const ConvertPlanSummary& plan,
                       const std::vector<MatrixQuality>& matrices) {
  nlohmann::ordered_json head = {
      {"format", "blockscale-conversion-report"},
      {"version", 1},
      {"tool", Version()},
      {"recipe", nlohmann::ordered_json::parse(RecipeJson(facts.recipe))},
      {"dialect", facts.dialect},
      {"int8_range", facts.int8_range},
      {"warnings", facts.warnings},
      {"source", facts.source},
      {"matrices_converted", plan.matrices},
      {"tensors_kept", plan.kept_tensors},
      {"source_shards", plan.source_shards},
      {"output_shards", plan.output_shards},
      {"source_bytes", plan.source_bytes},
      {"output_bytes", plan.output_bytes},
      {"summary", QualitySummaryJson(matrices)}};
  return WithMatrices(head, matrices);
}

std::string ReportHtml(const ReportFacts& facts, const ConvertPlanSummary& plan,
                       const std::vector<MatrixQuality>& matrices) {
  QualityPage page{.title = "Conversion to " + SchemesText(matrices), .matrices = &matrices};
  page.facts = {{"Source", facts.source},
                {"Output", facts.output},
                {"Recipe", RecipeJson(facts.recipe)},
                {"Dialect", facts.dialect},
                {"INT8 range", facts.int8_range},
                {"Matrices", std::to_string(plan.matrices)},
                {"Tensors kept as they are", std::to_string(plan.kept_tensors)},
                {"Shards", fmt::format("{} in, {} out", plan.source_shards, plan.output_shards)},
                {"Tensor data in", Gigabytes(plan.source_bytes)},
                {"Tensor data out", Gigabytes(plan.output_bytes)},
                {"This run wrote", Gigabytes(facts.written_bytes)},
                {"Time of this run", fmt::format("{:.2f} s", facts.seconds)},
                {"Throughput of this run",
                 facts.seconds > 0
                     ? fmt::format("{:.2f} GB/s",
                                   static_cast<double>(facts.written_bytes) / facts.seconds / 1e9)
                     : "-"},
                {"Tool", std::string("blockscale ") + Version()}};
  std::set<std::pair<std::string, std::string>> chosen;
  for (const MatrixQuality& matrix : matrices) chosen.emplace(matrix.to, "");
  page.comparison_note =
      "Predicted from a sample of the source's rows, every scheme with every scale rule.";
  for (const SchemeCost& cost : facts.comparison)
    page.comparison.push_back(
        {.name = cost.scale_rule.empty() ? cost.scheme : cost.scheme + ", " + cost.scale_rule,
         .bytes = cost.bytes,
         .relative_rmse = cost.relative_rmse,
         .chosen = chosen.contains({cost.scheme, ""})});
  return RenderQualityPage(page);
}

}  // namespace blockscale
