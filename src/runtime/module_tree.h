// The modules that a runtime builds for a checkpoint: their paths and classes there, which differ
// from the names on disk, and the tensors on disk that each of them loads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace blockscale {

enum class ModuleKind {
  kLinear,   // one matrix, or several stacked (qkv_proj, gate_up_proj)
  kExperts,  // all routed experts of a layer
  kGate,     // a router
  kEmbedding,
  kLmHead,
};

struct RuntimeModule {
  ModuleKind kind = ModuleKind::kLinear;
  std::string group;       // what it is shown under: "self_attn.qkv_proj", "mlp.experts", ...
  std::string name;        // the runtime's path
  std::string class_name;  // the runtime's class
  std::vector<std::string> parts;    // runtime names of a fused module's parts
  std::vector<std::string> on_disk;  // module names on disk, of the parts or of every expert
  bool split_columns = false;        // under tensor parallelism, else rows
  // False: built without quant_config, so that neither targets nor ignore are asked. Gates and
  // embeddings everywhere, lm_head where the family's class says so; any other lm_head is matched
  // by its name alone, its class being no "Linear".
  bool asks_config = true;
};

// Where an expert's matrix stands, from its module's name on disk: "....experts.7.w1".
struct ExpertPlace {
  uint64_t expert = 0;
  enum class Part { kGate, kDown, kUp, kOther } part = Part::kOther;
};
std::optional<ExpertPlace> PlaceOfExpert(const std::string& on_disk);

// 7 for "model.layers.7.self_attn.o_proj".
std::optional<uint64_t> LayerOf(std::string_view name);

// The loader passes over layers of multi-token prediction: those behind num_hidden_layers, as many
// as num_mtp_modules says, where the family has them.
bool IsPassedOver(const HfConfig& config, std::string_view name);

// From the names of the tensors that the index lists, ".weight" or ".weight_packed" of two
// dimensions. Under MiniMax-M2's vLLM class the experts live at model.layers.N.mlp.experts and the
// gate at model.layers.N.mlp.gate, though the checkpoint says block_sparse_moe; other families keep
// their names.
std::vector<RuntimeModule> BuildModuleTree(const Checkpoint& checkpoint);

}  // namespace blockscale
