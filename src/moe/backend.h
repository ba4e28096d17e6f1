// Who can run a layer. A backend says beforehand whether it can, prepares the weights once, and
// then runs; it never hands a layer on to another backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "moe/layer_weights.h"
#include "moe/row_quant.h"
#include "moe/spec.h"

namespace blockscale {

// One call of a layer. Not owned.
struct LayerCall {
  const ScaledRows* inputs = nullptr;  // spec.inputs, [tokens][hidden]
  std::span<const int32_t> ids;        // [tokens][top_k], global, -1 for none
  std::span<const float> weights;      // [tokens][top_k]
  // nvfp4: the global scale that the intermediate is quantised with.
  GlobalScale intermediate_global;

  size_t tokens() const { return inputs->rows; }
};

struct RunInfo {
  std::string backend;
  std::string kernel;        // what did the work, with its instruction set
  uint64_t local_slots = 0;  // slots whose expert is on this rank
};

// Refuses inputs of another shape or scheme than the layer's, and ids out of range.
Status CheckCall(const MoeSpec& spec, const LayerCall& call);

// Bytes of one output row.
size_t OutputRowBytes(const MoeSpec& spec);
// FP32 values to the output type, nearest.
void StoreOutput(OutputType type, const float* values, size_t count, std::byte* out);
// And back, exactly.
void LoadOutput(OutputType type, const std::byte* stored, size_t count, float* values);

class PreparedLayer {
 public:
  virtual ~PreparedLayer() = default;
  // Overwrites `output`, [tokens][hidden] of spec.output. Same call, same bits, whatever the number
  // of threads and whatever else is in the batch.
  virtual Result<RunInfo> Run(const LayerCall& call, std::byte* output) const = 0;
  virtual size_t bytes() const = 0;  // of the prepared weights
};

// How a candidate adds up a dot product: every element passes through at most `roundings` FP32
// additions and scalings. 0: one for each column, the most that any order can take.
struct Accumulation {
  uint32_t columns_per_rounding = 1;
  uint32_t more = 8;  // scales, limbs, the last sum
  double roundings(uint64_t columns) const {
    return static_cast<double>(columns) / columns_per_rounding + more;
  }
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  // Ok, or a sentence that names the activation and what to do. Apart from Supports, so that "it
  // has no such activation" can be told from every other reason.
  virtual Status HasActivation(const Activation&) const { return OkStatus(); }
  // Ok, or a sentence that names the object, its value, the limit and the remedy.
  virtual Status Supports(const MoeSpec& spec) const = 0;
  virtual Result<std::unique_ptr<PreparedLayer>> Prepare(const MoeSpec& spec,
                                                         const LayerWeights& weights) const = 0;
  virtual Accumulation accumulation(const MoeSpec& spec) const = 0;
};

// What a call must give: [tokens][hidden] each. A result x is right when low <= x <= high; `value`
// lies between. Rows that are not finite are marked instead.
struct Expected {
  std::vector<double> value, low, high;
  std::vector<bool> finite_row;
};

class Oracle {
 public:
  virtual ~Oracle() = default;
  virtual Result<Expected> Expect(const MoeSpec& spec, const LayerWeights& weights,
                                  const LayerCall& call, const Accumulation& candidate) const = 0;
};

}  // namespace blockscale
