// What a mixture-of-experts layer is, said once: sizes, formats, roundings, activation, slice.
// Every backend, the reference and the test harness take a MoeSpec and nothing beside it.
//
//   fc1:  [gate; up](e) = x * w13(e)^T + b13(e)          w13: 2 * intermediate x hidden (gated)
//   h  =  activation(gate, up), rounded as the recipe says
//   fc2:  y(e) = h * w2(e)^T + b2(e)                      w2: hidden x intermediate
//   out = sum over the slots of a token, in slot order, of weight * y(expert of the slot), in FP32
//
// An expert id is global; a slot whose expert is not on this rank, or is -1, contributes nothing; a
// row without any local expert is zero. Output is overwritten, never added to.
//
// As text: "kimi-k3,ep=32:7" or "experts=8,top-k=2,hidden=256,intermediate=128,weights=mxfp4,...".
// A known layer's name comes first, fields that follow change it; ToString gives the fields that
// differ from MoeSpec's own defaults, and ParseMoeSpec reads it back to the same spec.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/enum_list.h"
#include "blockscale/status.h"
#include "moe/activation.h"
#include "numeric/quant_spec.h"

namespace blockscale {

// How the rows that enter a matrix are stored: (enumerator, id, name, columns that share a scale;
// 0: the whole row).
//   bf16           no scale
//   mxfp8          E4M3, E8M0 a 32, scale rule ceil
//   nvfp4          E2M1, UE4M3 a 16, one FP32 scale of the whole tensor
//   int8-token     INT8, FP32 amax / 127 a row
//   fp8-token      E4M3, FP32 amax / 448 a row
//   fp8-token-128  E4M3, FP32 amax / 448 a 128 columns of a row
//   int8-32        INT8, FP32 amax / 127 a 32 columns of a row: llama.cpp's way with 4-bit weights
#define BLOCKSCALE_ROW_SCHEMES(X)          \
  X(kBf16, 0, "bf16", 1)                   \
  X(kMxfp8, 1, "mxfp8", 32)                \
  X(kNvfp4, 2, "nvfp4", 16)                \
  X(kInt8Token, 3, "int8-token", 0)        \
  X(kFp8Token, 4, "fp8-token", 0)          \
  X(kFp8Token128, 5, "fp8-token-128", 128) \
  X(kInt8Group, 6, "int8-32", 32)
BLOCKSCALE_ENUM_LIST(RowScheme, BLOCKSCALE_ROW_SCHEMES)

// The columns that share one scale; `columns` for a scheme with one scale a row.
uint64_t GroupOf(RowScheme scheme, uint64_t columns);

// What happens between the two matrices.
//   flashinfer-cutlass  FC1's FP32 sum to BF16; bias and activation in FP32; to BF16; quantised as
//                       `inputs` says; FC2's FP32 sum to BF16 before it is weighed
//   deepgemm-mega       FC1's FP32 sum to BF16; activation in FP32, times the slot's weight, and
//                       from there, unrounded, quantised; FC2 to BF16; slots are summed unweighed
//   exact               no rounding: h and FC2's sum stay FP32 and are never quantised
#define BLOCKSCALE_RECIPES(X)                    \
  X(kFlashInferCutlass, 0, "flashinfer-cutlass") \
  X(kDeepGemmMega, 1, "deepgemm-mega")           \
  X(kExact, 2, "exact")
BLOCKSCALE_ENUM_LIST(IntermediateRecipe, BLOCKSCALE_RECIPES)

// Where the rows of gate (w1) and up (w3) stand in w13.
#define BLOCKSCALE_GATE_UP_ORDERS(X)                                   \
  X(kUpGate, 0, "up-gate")          /* [up; gate], CUTLASS */          \
  X(kGateUp, 1, "gate-up")          /* [gate; up], Marlin, DeepGEMM */ \
  X(kInterleaved, 2, "interleaved") /* gate0, up0, gate1, ..., GPT-OSS */
BLOCKSCALE_ENUM_LIST(GateUpOrder, BLOCKSCALE_GATE_UP_ORDERS)

#define BLOCKSCALE_FINALIZES(X)                                   \
  X(kDeterministic, 0, "deterministic") /* FP32, in slot order */ \
  X(kAtomic, 1, "atomic")               /* FP32, in any order */
BLOCKSCALE_ENUM_LIST(Finalize, BLOCKSCALE_FINALIZES)

#define BLOCKSCALE_OUTPUT_TYPES(X) X(kBf16, 0, "bf16") X(kFp16, 1, "fp16") X(kF32, 2, "f32")
BLOCKSCALE_ENUM_LIST(OutputType, BLOCKSCALE_OUTPUT_TYPES)

inline constexpr uint32_t kMostSlots = 32;

struct MoeSpec {
  uint32_t experts = 8;  // of the whole layer
  uint32_t top_k = 2;
  uint32_t hidden = 256;
  uint32_t intermediate = 128;  // of the whole layer; a TP rank has a part of it
  Scheme weights = Scheme::kMxfp4;
  uint32_t weight_group = 0;  // int4-group: columns that share a scale; 0 for the usual
  RowScheme inputs = RowScheme::kMxfp8;
  Activation activation = SwiGlu();
  IntermediateRecipe recipe = IntermediateRecipe::kFlashInferCutlass;
  GateUpOrder order = GateUpOrder::kUpGate;
  Finalize finalize = Finalize::kDeterministic;
  OutputType output = OutputType::kBf16;
  bool biases = false;
  uint32_t ep_size = 1;
  uint32_t ep_rank = 0;
  uint32_t tp_size = 1;  // of the experts: tp / ep / dp of a serving engine
  uint32_t tp_rank = 0;

  uint32_t local_experts() const { return experts / ep_size; }
  uint32_t first_expert() const { return local_experts() * ep_rank; }
  bool is_local(int64_t id) const {
    return id >= first_expert() && id < int64_t{first_expert()} + local_experts();
  }
  uint32_t local_intermediate() const { return intermediate / tp_size; }
  uint32_t fc1_rows() const { return (activation.gated() ? 2 : 1) * local_intermediate(); }
  QuantSpec weight_spec() const;
  bool operator==(const MoeSpec&) const = default;
};

// Row of w13 that holds row n of gate or of up.
uint32_t GateRow(const MoeSpec& spec, uint32_t n);
uint32_t UpRow(const MoeSpec& spec, uint32_t n);

// Refuses what is no layer at all: counts of 0, more slots than experts, ranks beyond their size,
// sizes that a slice or a group of scales does not divide. What a backend cannot run it says
// itself.
Status ValidateMoeSpec(const MoeSpec& spec);

std::string ToString(const MoeSpec& spec);
// Also validated.
Result<MoeSpec> ParseMoeSpec(std::string_view text);

}  // namespace blockscale
