// From router logits to experts and their weights, a token at a time.
//
//   scores   = softmax(logits) or sigmoid(logits), in FP32
//   choice   = scores + correction bias; with groups, only of the `top_groups` groups whose two
//              highest choices sum highest
//   ids      = the top_k highest choices, ties to the lower id, highest first
//   weights  = scores of those (never the bias); renormalised: / (sum + 1e-20); * scale
//
// Source: DeepSeek-V3's noaux_tc routing, which Kimi-K3 and MiniMax-M2 share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/enum_list.h"
#include "blockscale/status.h"

namespace blockscale {

#define BLOCKSCALE_SCORES(X) X(kSoftmax, 0, "softmax") X(kSigmoid, 1, "sigmoid")
BLOCKSCALE_ENUM_LIST(Score, BLOCKSCALE_SCORES)

struct RoutingSpec {
  Score score = Score::kSigmoid;
  uint32_t experts = 0;
  uint32_t top_k = 0;   // 1 to 32
  uint32_t groups = 1;  // divides experts
  uint32_t top_groups = 1;
  bool renormalise = true;
  float scale = 1;
};

struct Routing {
  std::vector<int32_t> ids;    // [tokens][top_k]; -1: no expert
  std::vector<float> weights;  // [tokens][top_k]; 0 where the id is -1
  uint64_t nan_rows = 0;       // tokens with a NaN among their logits: all their ids are -1
};

// `logits` [tokens][experts]; `bias` [experts] or empty. Refuses a spec that is none: top_k of 0,
// above 32 or above what the chosen groups hold, groups that do not divide, a bias of another size
// or that is not finite.
Result<Routing> RouteTokens(const RoutingSpec& spec, std::span<const float> logits,
                            std::span<const float> bias);

// What a layer does with ids that a router, or anyone, hands it: every id must be -1 or in
// [0, experts). An error names the token, the slot and the id.
Status CheckIds(std::span<const int32_t> ids, uint32_t top_k, uint32_t experts);

}  // namespace blockscale
