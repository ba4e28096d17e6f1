#include "moe/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/status.h"
#include "moe/spec.h"

namespace blockscale {
namespace {

constexpr float kTiny = 1e-20f;

Status CheckSpec(const RoutingSpec& spec, std::span<const float> logits,
                 std::span<const float> bias) {
  if (spec.experts == 0 || logits.size() % spec.experts != 0)
    return InvalidInput("{} logits are no whole rows of {} experts", logits.size(), spec.experts);
  if (spec.groups == 0 || spec.experts % spec.groups != 0 || spec.top_groups == 0 ||
      spec.top_groups > spec.groups)
    return InvalidInput(
        "{} of {} groups of {} experts: groups must divide the experts, and 1 to all "
        "of them be chosen",
        spec.top_groups, spec.groups, spec.experts);
  const uint32_t reachable = spec.experts / spec.groups * spec.top_groups;
  if (spec.top_k == 0 || spec.top_k > kMostSlots || spec.top_k > reachable)
    return InvalidInput(
        "top-k is {}; it must be 1 to {} and no more than the {} experts of the "
        "chosen groups",
        spec.top_k, kMostSlots, reachable);
  if (!bias.empty() && bias.size() != spec.experts)
    return InvalidInput("the correction bias has {} values for {} experts", bias.size(),
                        spec.experts);
  for (size_t e = 0; e < bias.size(); ++e)
    if (!std::isfinite(bias[e]))
      return InvalidInput("the correction bias of expert {} is {}; it must be finite", e, bias[e]);
  return OkStatus();
}

void Scores(Score score, std::span<const float> logits, std::span<float> scores) {
  if (score == Score::kSigmoid) {
    for (size_t e = 0; e < logits.size(); ++e) scores[e] = 1 / (1 + std::exp(-logits[e]));
    return;
  }
  const float top = *std::max_element(logits.begin(), logits.end());
  float sum = 0;
  for (size_t e = 0; e < logits.size(); ++e) {
    // An infinite logit takes all: inf - inf would be NaN.
    scores[e] = logits[e] == top ? 1 : std::exp(logits[e] - top);
    sum += scores[e];
  }
  for (float& value : scores) value /= sum;
}

// Leaves only the experts of the best groups in play.
void MaskGroups(const RoutingSpec& spec, std::span<float> choice) {
  if (spec.groups == 1) return;
  const uint32_t size = spec.experts / spec.groups;
  std::vector<float> group_score(spec.groups);
  for (uint32_t g = 0; g < spec.groups; ++g) {
    std::vector<float> sorted(choice.begin() + g * size, choice.begin() + (g + 1) * size);
    std::partial_sort(sorted.begin(), sorted.begin() + std::min(2u, size), sorted.end(),
                      std::greater<>());
    group_score[g] = size > 1 ? sorted[0] + sorted[1] : sorted[0];
  }
  std::vector<uint32_t> order(spec.groups);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return group_score[a] > group_score[b]; });
  for (uint32_t i = spec.top_groups; i < spec.groups; ++i)
    std::fill_n(choice.begin() + order[i] * size, size, -std::numeric_limits<float>::infinity());
}

void RouteRow(const RoutingSpec& spec, std::span<const float> logits, std::span<const float> bias,
              int32_t* ids, float* weights) {
  std::vector<float> scores(spec.experts);
  Scores(spec.score, logits, scores);
  std::vector<float> choice = scores;
  for (size_t e = 0; e < bias.size(); ++e) choice[e] += bias[e];
  MaskGroups(spec, choice);
  std::vector<int32_t> order(spec.experts);
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(
      order.begin(), order.begin() + spec.top_k, order.end(),
      [&](int32_t a, int32_t b) { return choice[a] != choice[b] ? choice[a] > choice[b] : a < b; });
  float sum = 0;
  for (uint32_t k = 0; k < spec.top_k; ++k) {
    ids[k] = order[k];
    weights[k] = scores[order[k]];
    sum += weights[k];
  }
  for (uint32_t k = 0; k < spec.top_k; ++k) {
    if (spec.renormalise) weights[k] /= sum + kTiny;
    weights[k] *= spec.scale;
  }
}

}  // namespace

Result<Routing> RouteTokens(const RoutingSpec& spec, std::span<const float> logits,
                            std::span<const float> bias) {
  BLOCKSCALE_RETURN_IF_ERROR(CheckSpec(spec, logits, bias));
  const size_t tokens = logits.size() / spec.experts;
  Routing routing;
  routing.ids.assign(tokens * spec.top_k, -1);
  routing.weights.assign(tokens * spec.top_k, 0.0f);
  for (size_t t = 0; t < tokens; ++t) {
    const auto row = logits.subspan(t * spec.experts, spec.experts);
    if (std::any_of(row.begin(), row.end(), [](float x) { return std::isnan(x); })) {
      ++routing.nan_rows;
      continue;
    }
    RouteRow(spec, row, bias, &routing.ids[t * spec.top_k], &routing.weights[t * spec.top_k]);
  }
  return routing;
}

Status CheckIds(std::span<const int32_t> ids, uint32_t top_k, uint32_t experts) {
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < -1 || ids[i] >= static_cast<int64_t>(experts))
      return InvalidInput(
          "token {} slot {}: expert id {} is out of range; ids are 0 to {}, or -1 "
          "for none",
          i / top_k, i % top_k, ids[i], experts - 1);
  return OkStatus();
}

}  // namespace blockscale
