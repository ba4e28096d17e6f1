// Kernels of other projects: which layers they take on which chip, by their own conditions. They
// are not run from here; an engineer sees at start-up which path a model gets and why not another.
//
// The conditions are those of the versions named in each row, read in their sources or, where
// marked, in their issue threads; docs/external-kernels.md lists them with links.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "moe/device.h"
#include "moe/spec.h"

namespace blockscale {

struct ExternalKernel {
  std::string_view name;
  std::string_view version;  // whose conditions these are
  std::string_view wants;    // order of gate and up, row shuffle, padding
  // Ok, or a sentence that names the object, its value, the limit and the remedy.
  Status (*supports)(const MoeSpec& spec, Device device);
  // What a caller must know although it runs; "" for nothing.
  std::string (*note)(const MoeSpec& spec, Device device);
};

// In the order of preference.
std::span<const ExternalKernel> ExternalKernels();

}  // namespace blockscale
