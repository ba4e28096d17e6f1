// blockscale synth: a synthetic checkpoint.

#include <fmt/format.h>

#include <memory>

#include "base/status.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "model/synth.h"

namespace blockscale::cli {
namespace {

struct Flags {
  SynthOptions options;
  bool full = false;
};

int Synth(const Flags& flags) {
  if (flags.full && flags.options.family != Family::kMiniMaxM2)
    return Fail(InvalidInput("--full has minimax-m2's dimensions only; give {} its sizes by flags",
                             NameOf(flags.options.family)));
  SynthOptions options = flags.full ? FullSize(flags.options) : flags.options;
  Progress progress("writing", false);
  options.progress = [&](uint64_t done, uint64_t total) { progress.Bytes(done, total); };
  const Result<SynthSummary> summary = SynthesizeCheckpoint(PosixFileSystem(), options);
  progress.Done();
  if (!summary.ok()) return Fail(summary.status());
  fmt::print("{}: {} tensors, {} quantised matrices, in {} shards; {} bytes of data{}\n",
             options.output, summary->tensors, summary->matrices, summary->shards,
             summary->data_bytes,
             options.sparse ? " (sparse: all zeros, next to nothing on disk)" : "");
  return kOk;
}

}  // namespace

Command AddSynth(CLI::App& root) {
  auto flags = std::make_shared<Flags>();
  SynthOptions& options = flags->options;
  CLI::App* app = root.add_subcommand("synth", "Make a synthetic checkpoint of a model family");
  std::vector<std::pair<std::string, Family>> families;
  for (const Family family : AllFamily()) families.emplace_back(NameOf(family), family);
  AddChoice(app, "--family", options.family, families, "Model family")->required();
  app->add_option("--output", options.output, "Folder, new or empty")->required();
  std::vector<CLI::Option*> sizes = {
      app->add_option("--layers", options.size.layers, "Layers")->capture_default_str(),
      app->add_option("--experts", options.size.experts, "Experts a layer")->capture_default_str(),
      app->add_option("--hidden", options.size.hidden, "Hidden width")->capture_default_str(),
      app->add_option("--intermediate", options.size.intermediate, "Width inside an expert")
          ->capture_default_str(),
      app->add_option("--heads", options.size.heads, "Attention heads (of 128)")
          ->capture_default_str(),
      app->add_option("--kv-heads", options.size.kv_heads, "Key-value heads")
          ->capture_default_str(),
      app->add_option("--vocab", options.size.vocab, "Vocabulary")->capture_default_str(),
      app->add_option("--shards", options.shards, "Files")->capture_default_str()};
  app->add_option("--seed", options.seed, "Same seed, same bytes")
      ->check(CLI::Range(uint64_t{0}, ~uint64_t{0}))
      ->capture_default_str();
  CLI::Option* full =
      app->add_flag("--full", flags->full, "MiniMax-M2.7's real dimensions: 125 files, 214 GiB");
  for (CLI::Option* size : sizes) full->excludes(size->check(AtLeast(0)));
  app->add_flag("--sparse", options.sparse, "Real headers over files of zeros that take no room");
  return {app, [flags] { return Synth(*flags); }};
}

}  // namespace blockscale::cli
