// conversion_report.json and conversion_report.html: what every matrix lost.
#pragma once

#include <string>
#include <vector>

#include "blockscale/convert.h"
#include "blockscale/recipe.h"
#include "convert/plan.h"

namespace blockscale {

inline constexpr char kReportJsonName[] = "conversion_report.json";
inline constexpr char kReportHtmlName[] = "conversion_report.html";

struct ReportFacts {
  std::string source;  // canonical path
  std::string output;
  std::string int8_range;
  Recipe recipe;
  std::string dialect;
  std::vector<std::string> warnings;
  std::vector<SchemeCost> comparison;  // the page alone shows it
  double seconds = 0;                  // of this run; the page alone shows it
  uint64_t written_bytes = 0;          // by this run
};

// The same bytes for every run that ends well, however often it was interrupted: it holds no times.
std::string ReportJson(const ReportFacts& facts, const ConvertPlanSummary& plan,
                       const std::vector<MatrixQuality>& matrices);

std::string ReportHtml(const ReportFacts& facts, const ConvertPlanSummary& plan,
                       const std::vector<MatrixQuality>& matrices);

}  // namespace blockscale
