// The weights of a rank in the layout of the kernels: packed once, an expert at a time.
#pragma once

#include <vector>

#include "backends/cpu/tile.h"

namespace blockscale::cpu {

struct PackedExpert {
  TileMatrix gate, up, down;
};

class PackedLayer {
 public:
  // Peak memory: the result and one expert as `weights` gives it. Refuses scales that the tiles
  // have no place for.
  static Result<PackedLayer> Make(const MoeSpec& spec, const LayerWeights& weights);

  const PackedExpert& expert(uint32_t local) const { return experts_[local]; }
  size_t bytes() const;

 private:
  Status PackExpert(const MoeSpec& spec, const ExpertWeights& from, uint32_t local);

  HugeBuffer tiles_;
  std::vector<PackedExpert> experts_;
  std::vector<std::vector<float>> floats_;  // scales of rows and blocks, biases
};

}  // namespace blockscale::cpu
