#include "verify/quality_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

namespace blockscale {
namespace {

constexpr size_t kBins = 48;
constexpr size_t kWorstRows = 20;
constexpr size_t kAlertRows = 100;  // a wrong config can make every matrix fail

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string Percent(double value) { return fmt::format("{:.4f} %", 100 * value); }

// The range of errors that colours stand for.
struct Range {
  double low = 0, high = 1;
  double Fraction(double value) const {
    return high > low ? std::clamp((value - low) / (high - low), 0.0, 1.0) : 0.0;
  }
};

Range RangeOf(const std::vector<MatrixQuality>& matrices) {
  Range range{.low = INFINITY, .high = -INFINITY};
  for (const MatrixQuality& matrix : matrices) {
    range.low = std::min(range.low, matrix.relative_rmse);
    range.high = std::max(range.high, matrix.relative_rmse);
  }
  return matrices.empty() ? Range{} : range;
}

// From pale to dark blue-violet: brightness falls steadily, so that it reads without colours too.
std::string Colour(double fraction) {
  struct Stop {
    double r, g, b;
  };
  constexpr Stop kStops[] = {
      {237, 248, 233}, {161, 218, 180}, {65, 182, 196}, {34, 94, 168}, {37, 20, 90}};
  const double position = fraction * 4;
  const auto index = std::min<size_t>(static_cast<size_t>(position), 3);
  const double t = position - static_cast<double>(index);
  const auto mix = [&](double a, double b) {
    return static_cast<int>(std::lround(a + (b - a) * t));
  };
  const Stop &a = kStops[index], &b = kStops[index + 1];
  return fmt::format("#{:02x}{:02x}{:02x}", mix(a.r, b.r), mix(a.g, b.g), mix(a.b, b.b));
}

constexpr char kStyle[] = R"(
:root{color-scheme:light dark;--ink:#1c2430;--soft:#5b6675;--line:#d9dee5;--card:#fff;--page:#f4f6f8;--bar:#2b6cb0}
@media(prefers-color-scheme:dark){:root{--ink:#e6eaf0;--soft:#9aa5b4;--line:#333c48;--card:#1b222b;--page:#12171d;--bar:#63a4e0}}
*{box-sizing:border-box}body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 20px 60px}h1{font-size:26px;margin:0 0 4px}h2{font-size:17px;margin:0 0 10px}
section{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:18px 20px;margin-top:18px;overflow-x:auto}
p{margin:0 0 10px;color:var(--soft)}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:4px 14px 4px 0;border-bottom:1px solid var(--line);vertical-align:top}
td.n,th.n{text-align:right}th{color:var(--soft);font-weight:600}code{font:13px ui-monospace,monospace;overflow-wrap:anywhere}
svg{display:block;max-width:100%;height:auto}svg text{fill:var(--soft);font:11px system-ui,sans-serif}
#facts th{width:15em}
.bad{border-color:#c53030}.bad h2{color:#c53030}
)";

void AddFacts(const QualityPage& page, std::string& out) {
  out += "<section><h2>Facts</h2><table id=\"facts\"><tbody>\n";
  for (const auto& [label, text] : page.facts)
    out += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", Escaped(label), Escaped(text));
  out += "</tbody></table></section>\n";
}

void AddAlerts(const QualityPage& page, std::string& out) {
  if (page.alerts.empty()) return;
  out += "<section class=\"bad\"><h2>What does not hold</h2><table id=\"alerts\"><tbody>\n";
  const size_t rows = std::min(kAlertRows, page.alerts.size());
  for (size_t i = 0; i < rows; ++i)
    out += fmt::format("<tr><td><code>{}</code></td><td>{}</td></tr>\n",
                       Escaped(page.alerts[i].first), Escaped(page.alerts[i].second));
  if (rows < page.alerts.size())
    out += fmt::format("<tr><td colspan=\"2\">and {} more</td></tr>\n", page.alerts.size() - rows);
  out += "</tbody></table></section>\n";
}

void AddHistogram(const std::vector<MatrixQuality>& matrices, const Range& range,
                  std::string& out) {
  std::vector<uint64_t> bins(kBins);
  for (const MatrixQuality& matrix : matrices)
    ++bins[std::min<size_t>(static_cast<size_t>(range.Fraction(matrix.relative_rmse) * kBins),
                            kBins - 1)];
  const uint64_t most = std::max<uint64_t>(1, *std::max_element(bins.begin(), bins.end()));
  out +=
      "<section><h2>How the error is spread</h2><p>Relative RMSE of each matrix: "
      "||W - q s|| / ||W||.</p>\n<svg id=\"histogram\" role=\"img\" aria-label=\"Histogram of "
      "relative RMSE\" viewBox=\"0 0 1100 240\" width=\"1100\"><title>Histogram of relative "
      "RMSE</title>"
      "<text x=\"566\" y=\"224\" text-anchor=\"middle\">relative RMSE</text>\n";
  for (size_t bin = 0; bin < kBins; ++bin) {
    const double height = 190.0 * static_cast<double>(bins[bin]) / static_cast<double>(most);
    const double step = (range.high - range.low) / kBins;
    const double low = range.low + step * static_cast<double>(bin);
    out += fmt::format(
        "<rect class=\"bar\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"20\" height=\"{:.1f}\" "
        "fill=\"var(--bar)\"><title>{} matrices from {} to {}</title></rect>\n",
        50 + 21.5 * static_cast<double>(bin), 205 - height, height, bins[bin], Percent(low),
        Percent(low + step));
  }
  out += fmt::format(
      "<line x1=\"48\" y1=\"205\" x2=\"1084\" y2=\"205\" stroke=\"var(--line)\"/>\n"
      "<text x=\"50\" y=\"10\">up to {} matrices</text>"
      "<text x=\"50\" y=\"224\">{}</text>"
      "<text x=\"1082\" y=\"224\" text-anchor=\"end\">{}</text>\n</svg></section>\n",
      most, Percent(range.low), Percent(range.high));
}

// One cell of a grid: the worst matrix that falls on it.
struct Cell {
  const MatrixQuality* worst = nullptr;
  void Take(const MatrixQuality& matrix) {
    if (worst == nullptr || matrix.relative_rmse > worst->relative_rmse) worst = &matrix;
  }
};

void AddCell(const Cell& cell, double x, double y, double width, double height, const Range& range,
             std::string& out) {
  out += fmt::format(
      "<rect class=\"cell\" x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" "
      "height=\"{:.2f}\" fill=\"{}\"><title>{}: {}</title></rect>\n",
      x, y, width, height, Colour(range.Fraction(cell.worst->relative_rmse)),
      Escaped(cell.worst->name), Percent(cell.worst->relative_rmse));
}

void AddScale(const Range& range, double y, std::string& out) {
  for (int i = 0; i < 20; ++i)
    out += fmt::format("<rect x=\"{}\" y=\"{:.1f}\" width=\"10\" height=\"10\" fill=\"{}\"/>",
                       60 + 10 * i, y, Colour(i / 19.0));
  out += fmt::format(
      "<text x=\"54\" y=\"{0:.1f}\" text-anchor=\"end\">{1}</text>"
      "<text x=\"266\" y=\"{0:.1f}\">{2} relative RMSE</text>\n",
      y + 9, Percent(range.low), Percent(range.high));
}

using Grid = std::map<int, std::map<int, Cell>>;  // layer -> column -> cell

// Rows are layers; `columns` names the columns, or counts them where they are experts.
void AddGrid(const char* id, const char* label, const Grid& grid,
             const std::vector<std::string>& columns, bool name_columns, const Range& range,
             std::string& out) {
  const double width = std::clamp(1030.0 / static_cast<double>(columns.size()), 3.0, 44.0);
  const double height = std::clamp(900.0 / static_cast<double>(grid.size()), 6.0, 22.0);
  const double total_width = 70 + width * static_cast<double>(columns.size());
  const double total_height = 30 + height * static_cast<double>(grid.size()) + 34;
  out += fmt::format(
      "<svg id=\"{0}\" role=\"img\" aria-label=\"{1}\" viewBox=\"0 0 {2:.0f} {3:.0f}\" "
      "width=\"{2:.0f}\"><title>{1}</title><text x=\"54\" y=\"18\" "
      "text-anchor=\"end\">layer</text>\n",
      id, label, std::max(total_width, 420.0), total_height);
  const size_t every = name_columns ? 1 : std::max<size_t>(1, columns.size() / 16);
  for (size_t column = 0; column < columns.size(); column += every)
    out += fmt::format("<text x=\"{:.1f}\" y=\"18\">{}</text>\n",
                       60 + width * static_cast<double>(column), Escaped(columns[column]));
  double y = 26;
  size_t row = 0;
  const size_t every_row = height < 11 ? 4 : 1;
  for (const auto& [layer, cells] : grid) {
    if (row++ % every_row == 0)
      out += fmt::format("<text x=\"54\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
                         y + height - 1, layer);
    for (const auto& [column, cell] : cells)
      AddCell(cell, 60 + width * column, y, width - 0.5, height - 0.5, range, out);
    y += height;
  }
  AddScale(range, y + 10, out);
  out += "</svg>\n";
}

// Splits matrices into the expert grid and the grid of everything else that has a layer.
struct Grids {
  Grid experts, others;
  std::vector<std::string> expert_columns, other_columns;
};

Grids MakeGrids(const std::vector<MatrixQuality>& matrices) {
  Grids grids;
  std::map<std::string, int> part_column;
  int experts = 0;
  for (const MatrixQuality& matrix : matrices) {
    const TensorPlace place = PlaceOf(matrix.name);
    if (!place.layer) continue;
    if (place.expert) {
      grids.experts[*place.layer][*place.expert].Take(matrix);
      experts = std::max(experts, *place.expert + 1);
      continue;
    }
    const int column =
        part_column.emplace(place.part, static_cast<int>(part_column.size())).first->second;
    grids.others[*place.layer][column].Take(matrix);
  }
  for (int i = 0; i < experts; ++i) grids.expert_columns.push_back(std::to_string(i));
  grids.other_columns.resize(part_column.size());
  for (const auto& [part, column] : part_column) grids.other_columns[column] = part;
  return grids;
}

// One row a choice, with a bar as long as its error.
void AddComparison(const QualityPage& page, std::string& out) {
  if (page.comparison.empty()) return;
  double largest = 0;
  for (const ComparedChoice& choice : page.comparison)
    largest = std::max(largest, choice.relative_rmse);
  out += fmt::format(
      "<section><h2>What other schemes would cost</h2><p>{}</p><table id=\"comparison\"><thead><tr>"
      "<th>Scheme and scale rule</th><th class=\"n\">Bytes</th><th class=\"n\">Relative RMSE</th>"
      "<th></th></tr></thead><tbody>\n",
      Escaped(page.comparison_note));
  for (const ComparedChoice& choice : page.comparison) {
    const double width = largest > 0 ? 240.0 * choice.relative_rmse / largest : 0;
    out += fmt::format(
        "<tr><td>{0}{1}{2}</td><td class=\"n\">{3}</td><td class=\"n\">{4}</td><td><svg "
        "width=\"244\" height=\"12\" role=\"img\" aria-label=\"{4}\"><rect x=\"1\" y=\"1\" "
        "width=\"{5:.1f}\" height=\"10\" fill=\"{6}\"/></svg></td></tr>\n",
        choice.chosen ? "<b>" : "", Escaped(choice.name), choice.chosen ? "</b>" : "", choice.bytes,
        Percent(choice.relative_rmse), width, choice.chosen ? "#1b7837" : "#9aa5b1");
  }
  out += "</tbody></table></section>\n";
}

void AddWorst(const std::vector<MatrixQuality>& matrices, std::string& out) {
  std::vector<const MatrixQuality*> order;
  for (const MatrixQuality& matrix : matrices) order.push_back(&matrix);
  const size_t rows = std::min(kWorstRows, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(rows), order.end(),
                    [](const MatrixQuality* a, const MatrixQuality* b) {
                      return a->relative_rmse != b->relative_rmse
                                 ? a->relative_rmse > b->relative_rmse
                                 : a->name < b->name;
                    });
  out += fmt::format(
      "<section><h2>The worst {} matrices</h2><table id=\"worst\"><thead><tr>"
      "<th>Matrix</th><th class=\"n\">Shape</th><th class=\"n\">Relative RMSE</th>"
      "<th class=\"n\">SQNR</th><th class=\"n\">Max error, half steps</th>"
      "<th class=\"n\">Zero rows</th></tr></thead><tbody>\n",
      rows);
  for (size_t i = 0; i < rows; ++i) {
    const MatrixQuality& m = *order[i];
    out += fmt::format(
        "<tr><td><code>{}</code></td><td class=\"n\">{} x {}</td><td class=\"n\">{}</td>"
        "<td class=\"n\">{}</td><td class=\"n\">{:.6f}</td><td class=\"n\">{}</td></tr>\n",
        Escaped(m.name), m.rows, m.columns, Percent(m.relative_rmse),
        std::isfinite(m.sqnr_db) ? fmt::format("{:.2f} dB", m.sqnr_db) : "exact", m.max_half_steps,
        m.zero_rows);
  }
  out += "</tbody></table></section>\n";
}

std::optional<int> NumberAfter(std::string_view name, std::string_view marker) {
  const size_t at = name.find(marker);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = name.substr(at + marker.size());
  int number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  const bool whole = end == rest.data() + rest.size() || *end == '.';
  // The page draws a column for every number up to the largest: a wild one must not fill memory.
  if (error != std::errc() || !whole || number < 0 || number >= 65536) return std::nullopt;
  return number;
}

}  // namespace

TensorPlace PlaceOf(std::string_view name) {
  TensorPlace place{.layer = NumberAfter(name, "layers."), .expert = NumberAfter(name, "experts.")};
  const size_t end = name.rfind('.');
  if (end != std::string_view::npos) name = name.substr(0, end);
  place.part = std::string(name.substr(name.rfind('.') + 1));
  return place;
}

std::string RenderQualityPage(const QualityPage& page) {
  const std::vector<MatrixQuality>& matrices = *page.matrices;
  const Range range = RangeOf(matrices);
  const Grids grids = MakeGrids(matrices);
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>{0}</title><style>{1}</style></head><body><main>\n"
      "<h1>{0}</h1>\n<p>{2} matrices</p>\n",
      Escaped(page.title), kStyle, matrices.size());
  AddAlerts(page, out);
  AddFacts(page, out);
  AddComparison(page, out);
  if (!matrices.empty()) AddHistogram(matrices, range, out);
  if (!grids.experts.empty()) {
    out +=
        "<section><h2>Experts: layer by expert</h2><p>Each cell is the worst matrix of one expert. "
        "Rows are layers, columns are experts; point at a cell for its name.</p>\n";
    AddGrid("heatmap", "Relative RMSE by layer and expert", grids.experts, grids.expert_columns,
            false, range, out);
    out += "</section>\n";
  }
  if (!grids.others.empty()) {
    out += "<section><h2>Other matrices by layer</h2>\n";
    AddGrid("layers", "Relative RMSE of other matrices by layer", grids.others, grids.other_columns,
            true, range, out);
    out += "</section>\n";
  }
  if (!matrices.empty()) AddWorst(matrices, out);
  return out + "</main></body></html>\n";
}

}  // namespace blockscale
