// --spec or --checkpoint [--layer]: the layer that a command is about.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "checkpoint/checkpoint.h"
#include "cli/command.h"
#include "model/checkpoint_layer.h"

namespace blockscale::cli {

struct LayerFlags {
  std::string spec;
  std::string checkpoint;
  std::optional<uint64_t> layer;
};

void AddLayerFlags(CLI::App* app, LayerFlags* flags);

// What the flags name. With --checkpoint the two pointers are set, and weights may be read.
struct ChosenLayer {
  MoeSpec spec;
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<CheckpointLayer> layer;
};

// An error when neither or both are given.
Result<ChosenLayer> ChooseLayer(const LayerFlags& flags);

}  // namespace blockscale::cli
