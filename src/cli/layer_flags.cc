#include "cli/layer_flags.h"

#include "base/status.h"

namespace blockscale::cli {

void AddLayerFlags(CLI::App* app, LayerFlags* flags) {
  app->add_option("--spec", flags->spec,
                  "The layer: \"kimi-k3,ep=32:7\", \"experts=8,weights=nvfp4,inputs=nvfp4\"");
  app->add_option("--checkpoint", flags->checkpoint, "Or a layer of the checkpoint in this folder");
  app->add_option("--layer", flags->layer, "Which one; the first with experts without");
}

Result<ChosenLayer> ChooseLayer(const LayerFlags& flags) {
  if (flags.spec.empty() == flags.checkpoint.empty())
    return InvalidInput("give --spec LAYER or --checkpoint FOLDER, one of them");
  ChosenLayer chosen;
  if (!flags.spec.empty()) {
    BLOCKSCALE_ASSIGN_OR_RETURN(chosen.spec, ParseMoeSpec(flags.spec));
    return chosen;
  }
  BLOCKSCALE_ASSIGN_OR_RETURN(Checkpoint checkpoint,
                              Checkpoint::Open(PosixFileSystem(), flags.checkpoint));
  chosen.checkpoint = std::make_unique<Checkpoint>(std::move(checkpoint));
  uint64_t layer = flags.layer.value_or(0);
  if (!flags.layer) {
    BLOCKSCALE_ASSIGN_OR_RETURN(layer, FirstMoeLayer(*chosen.checkpoint));
  }
  BLOCKSCALE_ASSIGN_OR_RETURN(CheckpointLayer found, FindLayer(*chosen.checkpoint, layer));
  chosen.layer = std::make_unique<CheckpointLayer>(std::move(found));
  chosen.spec = chosen.layer->spec;
  return chosen;
}

}  // namespace blockscale::cli
