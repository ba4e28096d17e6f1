// One expert of the oracle: rows in, ranges out.
#pragma once

#include <vector>

#include "backends/reference/interval.h"
#include "moe/backend.h"

namespace blockscale::reference {

// Doubles of rows that enter a matrix: exact values, or ranges after a re-quantisation.
using IntervalRow = std::vector<Interval>;

struct ExpertJob {
  const MoeSpec* spec = nullptr;
  const ExpertWeights* weights = nullptr;
  ActivationValues activation{};
  double gate_lowest_at = 0;
  Accumulation candidate;
  GlobalScale intermediate_global;
};

// `rows` are decoded inputs, `slot_weights` go with them (deepgemm-mega uses them). Returns a row
// of `hidden` ranges for each: FC2 with its bias, rounded as the recipe says.
std::vector<IntervalRow> RunExpert(const ExpertJob& job,
                                   const std::vector<const std::vector<double>*>& rows,
                                   const std::vector<float>& slot_weights);

}  // namespace blockscale::reference
