// The modules that a runtime builds for a checkpoint: their paths and classes there, which differ
// from the names on disk, and the tensors on disk that each of them loads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace blockscale {

enum class ModuleKind {
  kLinear,     // one matrix, or several stacked (qkv_proj, gate_up_proj)
  kExperts,    // all routed experts of a layer
  kGate,       // a router; built without quant_config
  kEmbedding,  // never quantised
  kLmHead,     // matched by name alone
};

struct RuntimeModule {
  ModuleKind kind = ModuleKind::kLinear;
  std::string group;       // what it is shown under: "self_attn.qkv_proj", "mlp.experts", ...
  std::string name;        // the runtime's path
  std::string class_name;  // the runtime's class
  std::vector<std::string> parts;    // runtime names of a fused module's parts
  std::vector<std::string> on_disk;  // module names on disk, of the parts or of every expert
  bool split_columns = false;        // under tensor parallelism, else rows
};

// From the names of the tensors that the index lists. Under MiniMax-M2's vLLM class the experts
// live at model.layers.N.mlp.experts and the gate at model.layers.N.mlp.gate, though the checkpoint
// says block_sparse_moe; other families keep their names.
std::vector<RuntimeModule> BuildModuleTree(const Checkpoint& checkpoint);

}  // namespace blockscale
