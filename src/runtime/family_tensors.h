// The tensors that a runtime's class for a model type has parameters for: names on disk and shapes
// from the config, as data rows. What is missing is found here, and what nobody asks for.
#pragma once

#include "checkpoint/checkpoint.h"
#include "runtime/disk_check.h"

namespace blockscale {

// The loader of vLLM checks whether every parameter was loaded only for models that are not
// quantised, so a missing tensor of a quantised one is silent; a tensor that no parameter waits for
// is a KeyError. Does nothing for a model type without rows (minimax_m2 has them) and without
// num_hidden_layers. Experts are looked at one by one in CheckOnDisk; here, whether there are any.
void CheckFamilyTensors(const Checkpoint& checkpoint, GroupedFindings& findings);

}  // namespace blockscale
