// The sizes of a model, under the names of `blockscale synth`'s flags.
#pragma once

#include <cstdint>

namespace blockscale {

struct ModelSize {
  uint64_t layers = 2;
  uint64_t experts = 8;
  uint64_t hidden = 256;
  uint64_t intermediate = 384;  // of an expert
  uint64_t heads = 4;
  uint64_t kv_heads = 2;
  uint64_t head_dim = 128;
  uint64_t vocab = 1024;
};

}  // namespace blockscale
