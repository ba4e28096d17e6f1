#include "verify/quality_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace blockscale {

using OrderedJson = nlohmann::ordered_json;

double SqnrDb(double relative_rmse) { return -20.0 * std::log10(relative_rmse); }

OrderedJson QualitySummaryJson(const std::vector<MatrixQuality>& matrices) {
  std::vector<double> errors;
  double sum = 0, half_steps = 0;
  uint64_t zero_rows = 0, clipped = 0;
  const MatrixQuality* worst = nullptr;
  for (const MatrixQuality& matrix : matrices) {
    errors.push_back(matrix.relative_rmse);
    sum += matrix.relative_rmse;
    half_steps = std::max(half_steps, matrix.max_half_steps);
    zero_rows += matrix.zero_rows;
    clipped += matrix.clipped;
    if (worst == nullptr || matrix.relative_rmse > worst->relative_rmse) worst = &matrix;
  }
  OrderedJson rmse = {{"min", nullptr},
                      {"median", nullptr},
                      {"mean", nullptr},
                      {"max", nullptr},
                      {"worst", nullptr}};
  if (worst != nullptr) {
    std::sort(errors.begin(), errors.end());
    rmse = {{"min", errors.front()},
            {"median", errors[errors.size() / 2]},
            {"mean", sum / static_cast<double>(errors.size())},
            {"max", errors.back()},
            {"worst", worst->name}};
  }
  return {{"relative_rmse", std::move(rmse)},
          {"max_half_steps", half_steps},
          {"zero_rows", zero_rows},
          {"clipped", clipped}};
}

std::string WithMatrices(const OrderedJson& head, const std::vector<MatrixQuality>& matrices) {
  // Paths of files need not be UTF-8; JSON must be.
  constexpr auto kReplace = OrderedJson::error_handler_t::replace;
  std::string text = head.dump(2, ' ', false, kReplace);
  text.resize(text.size() - 2);  // the closing brace and its line break
  text += ",\n  \"matrices\": [";
  const char* separator = "\n";
  for (const MatrixQuality& matrix : matrices) {
    const OrderedJson row = {
        {"name", matrix.name},
        {"rows", matrix.rows},
        {"columns", matrix.columns},
        {"relative_rmse", matrix.relative_rmse},
        {"sqnr_db", std::isfinite(matrix.sqnr_db) ? OrderedJson(matrix.sqnr_db) : OrderedJson()},
        {"max_half_steps", matrix.max_half_steps},
        {"zero_rows", matrix.zero_rows},
        {"clipped", matrix.clipped},
        {"from", matrix.from},
        {"to", matrix.to},
        {"inexact_blocks", matrix.inexact_blocks}};
    text += separator;
    text += "    " + row.dump(-1, ' ', false, kReplace);
    separator = ",\n";
  }
  return text + "\n  ]\n}\n";
}

}  // namespace blockscale
