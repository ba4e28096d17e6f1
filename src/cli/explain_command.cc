// blockscale explain: which backend a layer gets on a device, and why no other.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "backends/all.h"
#include "base/status.h"
#include "cli/command.h"
#include "cli/layer_flags.h"
#include "moe/select.h"

namespace blockscale::cli {
namespace {

struct Flags {
  LayerFlags layer;
  std::optional<Device> device;
  std::string backend;
  bool json = false;
};

void PrintJson(const MoeSpec& spec, Device device, const Selection& selection) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Verdict& v : selection.table)
    rows.push_back({{"backend", v.name},
                    {"in_this_build", !v.external},
                    {"runs", v.runs},
                    {"reason", v.reason},
                    {"wants", v.wants}});
  nlohmann::ordered_json json = {{"spec", ToString(spec)}, {"device", NameOf(device)}};
  json["chosen"] = selection.chosen
                       ? nlohmann::ordered_json(selection.table[*selection.chosen].name)
                       : nlohmann::ordered_json();
  json["backends"] = std::move(rows);
  fmt::print("{}\n", json.dump(2));
}

void PrintText(const MoeSpec& spec, Device device, const Selection& selection) {
  fmt::print("{}\non {}\n\n", ToString(spec), NameOf(device));
  for (size_t i = 0; i < selection.table.size(); ++i) {
    const Verdict& v = selection.table[i];
    const bool chosen = selection.chosen && *selection.chosen == i;
    fmt::print("{} {:<18} {:<8} {}\n", chosen ? "->" : "  ", v.name, v.runs ? "runs" : "refuses",
               v.reason);
    if (v.runs && !v.wants.empty()) fmt::print("   {:<18} {:<8} wants {}\n", "", "", v.wants);
  }
  if (!selection.chosen) fmt::print("\nno backend takes this layer on {}\n", NameOf(device));
}

int Explain(const Flags& flags) {
  const auto layer = ChooseLayer(flags.layer);
  if (!layer.ok()) return Fail(layer.status());
  const MoeSpec& spec = layer->spec;
  const Device device = flags.device.value_or(ThisDevice());
  const auto selection = SelectBackend(spec, device, AllBackends(), flags.backend);
  if (!selection.ok()) return Fail(selection.status());
  if (flags.json)
    PrintJson(spec, device, *selection);
  else
    PrintText(spec, device, *selection);
  return selection->chosen ? kOk : kSaysNo;
}

}  // namespace

Command AddExplain(CLI::App& root) {
  auto flags = std::make_shared<Flags>();
  CLI::App* app = root.add_subcommand(
      "explain", "Which backend a layer gets, and why no other; exit 1 if none takes it");
  AddLayerFlags(app, &flags->layer);
  std::vector<std::pair<std::string, std::optional<Device>>> devices;
  for (const Device device : AllDevice()) devices.emplace_back(NameOf(device), device);
  AddChoice(app, "--device", flags->device, devices, "The chip; this machine's processor without");
  app->add_option("--backend", flags->backend, "Ask for this one: an error if it cannot run");
  app->add_flag("--json", flags->json, "Print the result as JSON");
  return {app, [flags] { return Explain(*flags); }};
}

}  // namespace blockscale::cli
