// One case for a MoE layer, made from a text and a seed: weights, inputs, routing. Both sides of a
// comparison get the same codes and scales; nobody sees what they were quantised from.
//
// As text: "LAYER;tokens=8,routing=skewed,rows=nan,seed=1" with LAYER as in moe/spec.h.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "moe/backend.h"

namespace blockscale {

// Who goes where.
//   uniform  every expert as likely as any other
//   skewed   most tokens choose the same few experts
//   empty    only every third expert is ever chosen
//   masked   every fourth slot is -1
//   padded   every other row only pads the batch: ids -1, inputs NaN
#define BLOCKSCALE_CASE_ROUTINGS(X) \
  X(kUniform, 0, "uniform")         \
  X(kSkewed, 1, "skewed")           \
  X(kEmpty, 2, "empty")             \
  X(kMasked, 3, "masked")           \
  X(kPadded, 4, "padded")
BLOCKSCALE_ENUM_LIST(CaseRouting, BLOCKSCALE_CASE_ROUTINGS)

// What is in the rows: finite numbers, or every third row with one NaN or one infinity.
#define BLOCKSCALE_CASE_ROWS(X) X(kFinite, 0, "finite") X(kNan, 1, "nan") X(kInf, 2, "inf")
BLOCKSCALE_ENUM_LIST(CaseRows, BLOCKSCALE_CASE_ROWS)

struct MoeCase {
  MoeSpec spec;
  size_t tokens = 8;
  CaseRouting routing = CaseRouting::kUniform;
  CaseRows rows = CaseRows::kFinite;
  uint64_t seed = 1;
};

std::string ToString(const MoeCase& moe_case);
Result<MoeCase> ParseMoeCase(std::string_view text);

// The data of a call, owned.
struct CaseData {
  ScaledRows inputs;
  std::vector<int32_t> ids;
  std::vector<float> weights;
  GlobalScale intermediate_global;

  LayerCall call() const { return {&inputs, ids, weights, intermediate_global}; }
};

CaseData MakeCaseData(const MoeCase& moe_case);

// FC1's sums reach beyond every activation's bend: limits of 7, betas of 4 and 25.
inline constexpr float kFc1Gain = 8;

// Random codes (no NaN) and scales that differ from row to row and group to group, such that FC1's
// sums are around `fc1_gain` and FC2's around the activation. The same for the same spec (but for
// its recipe and activation) and seed.
StackedWeights MakeCaseStack(const MoeSpec& spec, uint64_t seed, float fc1_gain = kFc1Gain);
std::unique_ptr<LayerWeights> MakeCaseWeights(const MoeSpec& spec, uint64_t seed,
                                              float fc1_gain = kFc1Gain);

// Those of the case that was asked for last are kept: neighbours of a suite share them, and those
// of a real layer take a while to make.
class CaseWeights {
 public:
  const LayerWeights& Of(const MoeCase& moe_case);

 private:
  std::string made_for_;
  std::unique_ptr<LayerWeights> weights_;
};

}  // namespace blockscale
