#include "backends/cpu/kernel.h"

namespace blockscale::cpu {

Kernel ChooseKernel(const TileFormat&) { return {"portable", RunBlockPortable}; }

Kernel KernelNamed(std::string_view name, const TileFormat&) {
  if (name == "portable") return {"portable", RunBlockPortable};
  return {};
}

}  // namespace blockscale::cpu
