// Routing: who is chosen and with what weight, against a plain reading of the rule.

#include "moe/routing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace blockscale {
namespace {

using Ids = std::vector<int32_t>;

Routing Routed(const RoutingSpec& spec, std::vector<float> logits, std::vector<float> bias = {}) {
  const auto routing = RouteTokens(spec, logits, bias);
  EXPECT_TRUE(routing.ok()) << routing.status().message();
  return routing.ok() ? *routing : Routing();
}

float Sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

TEST(Routing, SoftmaxTopTwo) {
  RoutingSpec spec{.score = Score::kSoftmax, .experts = 4, .top_k = 2, .renormalise = false};
  const Routing r = Routed(spec, {0, 2, 1, -1});
  EXPECT_EQ(r.ids, (Ids{1, 2}));
  const double sum = 1 + std::exp(2.0) + std::exp(1.0) + std::exp(-1.0);
  EXPECT_NEAR(r.weights[0], std::exp(2.0) / sum, 1e-6);
  EXPECT_NEAR(r.weights[1], std::exp(1.0) / sum, 1e-6);
}

TEST(Routing, BiasChoosesButDoesNotWeigh) {
  RoutingSpec spec{.experts = 4, .top_k = 2, .scale = 2.5f};
  const Routing r = Routed(spec, {3, 2, 1, 0}, {0, 0, 0, 5});
  EXPECT_EQ(r.ids, (Ids{3, 0}));
  const float sum = Sigmoid(0) + Sigmoid(3);
  EXPECT_NEAR(r.weights[0], 2.5f * Sigmoid(0) / sum, 1e-6);
  EXPECT_NEAR(r.weights[1], 2.5f * Sigmoid(3) / sum, 1e-6);
}

TEST(Routing, TiesGoToTheLowerId) {
  RoutingSpec spec{.experts = 40, .top_k = 32};
  const Routing r = Routed(spec, std::vector<float>(40, 1.0f));
  for (int k = 0; k < 32; ++k) EXPECT_EQ(r.ids[k], k);
}

TEST(Routing, OnlyTheBestGroupsAreInPlay) {
  // Group sums of the two highest: {0.9 + 0.1}, {0.6 + 0.6}, {0.7 + 0.2}: the second wins although
  // the first holds the highest.
  RoutingSpec spec{.experts = 6, .top_k = 2, .groups = 3, .top_groups = 1};
  const auto logit = [](float p) { return std::log(p / (1 - p)); };
  const Routing r =
      Routed(spec, {logit(0.9f), logit(0.1f), logit(0.6f), logit(0.6f), logit(0.7f), logit(0.2f)});
  EXPECT_EQ(r.ids, (Ids{2, 3}));
}

TEST(Routing, NanRowsGetNoExpertAndAreCounted) {
  RoutingSpec spec{.experts = 3, .top_k = 2};
  const Routing r = Routed(spec, {1, 2, 3, 1, NAN, 3, 3, 2, 1});
  EXPECT_EQ(r.ids, (Ids{2, 1, -1, -1, 0, 1}));
  EXPECT_EQ(r.nan_rows, 1u);
  EXPECT_EQ(r.weights[2], 0);
  EXPECT_EQ(r.weights[3], 0);
}

TEST(Routing, InfiniteLogitsAreNumbers) {
  RoutingSpec spec{.score = Score::kSoftmax, .experts = 3, .top_k = 2};
  const Routing r = Routed(spec, {0, INFINITY, 1});
  EXPECT_EQ(r.ids, (Ids{1, 0}));
  EXPECT_EQ(r.weights[0], 1);
  EXPECT_EQ(r.weights[1], 0);
}

TEST(Routing, ScoresThatAreAllZeroDoNotDivideByZero) {
  RoutingSpec spec{.experts = 2, .top_k = 2};
  const Routing r = Routed(spec, {-INFINITY, -INFINITY});
  EXPECT_EQ(r.ids, (Ids{0, 1}));
  EXPECT_EQ(r.weights, (std::vector<float>{0, 0}));
}

TEST(Routing, ManyExpertsAgainstASort) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  RoutingSpec spec{.experts = 896, .top_k = 16};
  std::vector<float> logits(896 * 5), bias(896);
  for (float& x : logits) x = normal(random);
  for (float& x : bias) x = 0.1f * normal(random);
  const Routing r = Routed(spec, logits, bias);
  for (int t = 0; t < 5; ++t) {
    std::vector<std::pair<float, int>> all;
    for (int e = 0; e < 896; ++e) all.push_back({-(Sigmoid(logits[t * 896 + e]) + bias[e]), e});
    std::sort(all.begin(), all.end());
    float sum = 0;
    for (int k = 0; k < 16; ++k) {
      EXPECT_EQ(r.ids[t * 16 + k], all[k].second);
      sum += r.weights[t * 16 + k];
    }
    EXPECT_NEAR(sum, 1, 1e-6);
  }
}

TEST(Routing, RefusesWhatIsNoRouting) {
  const auto message = [](RoutingSpec spec, size_t logits, std::vector<float> bias) {
    return RouteTokens(spec, std::vector<float>(logits), bias).status().message();
  };
  EXPECT_EQ(message({.experts = 4, .top_k = 2}, 7, {}), "7 logits are no whole rows of 4 experts");
  EXPECT_NE(message({.experts = 4, .top_k = 0}, 4, {}), "");
  EXPECT_NE(message({.experts = 64, .top_k = 33}, 64, {}), "");
  EXPECT_NE(message({.experts = 4, .top_k = 3, .groups = 2, .top_groups = 1}, 4, {}), "");
  EXPECT_NE(message({.experts = 4, .top_k = 1, .groups = 3}, 4, {}), "");
  EXPECT_NE(message({.experts = 4, .top_k = 1}, 4, {1, 2}), "");
  EXPECT_EQ(message({.experts = 2, .top_k = 1}, 2, {1, NAN}),
            "the correction bias of expert 1 is nan; it must be finite");
}

TEST(Routing, IdsOutOfRangeAreNamed) {
  EXPECT_TRUE(CheckIds(Ids{-1, 0, 7, 7}, 2, 8).ok());
  EXPECT_EQ(CheckIds(Ids{-1, 0, 8, 7}, 2, 8).message(),
            "token 1 slot 0: expert id 8 is out of range; ids are 0 to 7, or -1 for none");
  EXPECT_FALSE(CheckIds(Ids{-2}, 1, 8).ok());
}

}  // namespace
}  // namespace blockscale
