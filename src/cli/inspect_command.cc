// blockscale inspect: what is in a checkpoint.

#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "cli/command.h"
#include "model/inspect.h"

namespace blockscale::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr size_t kShownOfAKind = 10;

struct Flags {
  std::string folder;
  bool json = false;
  bool strict = false;
};

std::string FamilyName(const Inspection& inspection) {
  return inspection.family ? std::string(NameOf(*inspection.family)) : "unknown";
}

OrderedJson ToJson(const TensorCount& count) {
  return {{"tensors", count.tensors}, {"bytes", count.bytes}};
}

OrderedJson ToJson(const Inspection& inspection) {
  OrderedJson schemes = OrderedJson::object(), classes = OrderedJson::object();
  for (const auto& [name, count] : inspection.schemes) schemes[name] = ToJson(count);
  for (const auto& [kind, count] : inspection.classes)
    classes[std::string(NameOf(kind))] = ToJson(count);
  OrderedJson shards = OrderedJson::array(), findings = OrderedJson::array();
  for (const auto& [name, count] : inspection.shards)
    shards.push_back({{"name", name}, {"tensors", count.tensors}, {"bytes", count.bytes}});
  for (const Finding& finding : inspection.findings)
    findings.push_back({{"kind", finding.kind}, {"message", finding.message}});
  return {{"folder", inspection.folder},
          {"family", FamilyName(inspection)},
          {"model_type", inspection.model_type},
          {"quant_method", inspection.quant_method},
          {"tensors", inspection.total.tensors},
          {"bytes", inspection.total.bytes},
          {"fp8_matrices", inspection.fp8_matrices},
          {"int8_matrices", inspection.int8_matrices},
          {"dialects", inspection.dialects},
          {"schemes", std::move(schemes)},
          {"classes", std::move(classes)},
          {"shards", std::move(shards)},
          {"data_read", inspection.data_read},
          {"findings", std::move(findings)}};
}

std::string Size(uint64_t bytes) {
  const double gib = static_cast<double>(bytes) / (1 << 30);
  return gib >= 0.1 ? fmt::format("{:.2f} GiB", gib) : fmt::format("{:.2f} MiB", gib * 1024);
}

void PrintRow(std::string_view name, const TensorCount& count) {
  fmt::print("  {:<34} {:>8} tensors  {:>12}\n", name, count.tensors, Size(count.bytes));
}

// In their order, the first few of each kind, so that no kind drowns another.
void PrintFindings(const std::vector<Finding>& findings) {
  std::map<std::string_view, size_t> seen;
  for (const Finding& finding : findings)
    if (++seen[finding.kind] <= kShownOfAKind)
      fmt::print("  {:<17} {}\n", finding.kind, finding.message);
  for (const auto& [kind, count] : seen)
    if (count > kShownOfAKind)
      fmt::print("  {:<17} and {} more; --json has them all\n", kind, count - kShownOfAKind);
}

void Print(const Inspection& inspection) {
  fmt::print("{}\n", OneLine(inspection.folder));
  fmt::print("family        {} (model_type '{}')\n", FamilyName(inspection),
             OneLine(inspection.model_type));
  fmt::print("quant_method  {}\n",
             inspection.quant_method.empty() ? "none" : OneLine(inspection.quant_method));
  fmt::print("tensors       {} in {} shards, {} bytes ({}); {} FP8 matrices\n",
             inspection.total.tensors, inspection.shards.size(), inspection.total.bytes,
             Size(inspection.total.bytes), inspection.fp8_matrices);
  fmt::print("schemes (by tensor presence and type, scales included)\n");
  for (const auto& [name, count] : inspection.schemes) PrintRow(name, count);
  for (const auto& [name, count] : inspection.dialects)
    fmt::print("  {} matrices spelt as {}\n", count, name);
  fmt::print("classes\n");
  for (const auto& [kind, count] : inspection.classes) PrintRow(NameOf(kind), count);
  fmt::print("findings      {}{}\n", inspection.findings.size(),
             inspection.data_read ? "" : " (headers only; --strict reads the data too)");
  PrintFindings(inspection.findings);
}

int Inspect(const Flags& flags) {
  const Result<Inspection> inspection =
      InspectCheckpoint(PosixFileSystem(), flags.folder, flags.strict);
  if (!inspection.ok()) return Fail(inspection.status());
  if (flags.json)
    // File names need not be UTF-8; JSON must be.
    fmt::print("{}\n",
               ToJson(*inspection).dump(2, ' ', false, OrderedJson::error_handler_t::replace));
  else
    Print(*inspection);
  return flags.strict && !inspection->findings.empty() ? kSaysNo : kOk;
}

}  // namespace

Command AddInspect(CLI::App& root) {
  auto flags = std::make_shared<Flags>();
  CLI::App* app =
      root.add_subcommand("inspect", "Say what is in a checkpoint and what is odd about it");
  app->add_option("dir", flags->folder, "Folder of the checkpoint")->required();
  app->add_flag("--json", flags->json, "Print JSON");
  app->add_flag("--strict", flags->strict,
                "Read the data too (NaN codes, bad scales); exit 1 if there is any finding");
  return {app, [flags] { return Inspect(*flags); }};
}

}  // namespace blockscale::cli
