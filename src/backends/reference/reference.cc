#include "backends/reference/reference.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "backends/reference/expert.h"
#include "base/status.h"

namespace blockscale {
namespace {

using reference::Interval;
using reference::IntervalRow;

constexpr double kHalfUlp = 0x1p-24;

std::vector<std::vector<double>> DecodeInputs(const ScaledRows& inputs) {
  std::vector<std::vector<double>> rows(inputs.rows);
  std::vector<float> row(inputs.columns);
  for (size_t t = 0; t < inputs.rows; ++t) {
    DecodeRow(inputs, t, row.data());
    rows[t].assign(row.begin(), row.end());
  }
  return rows;
}

double Rounded(OutputType type, double x) {
  const float value = static_cast<float>(x);
  std::byte stored[4];
  float back = 0;
  StoreOutput(type, &value, 1, stored);
  LoadOutput(type, stored, 1, &back);
  return back;
}

// One token: the sum of its slots' rows, in slot order.
void Combine(const MoeSpec& spec, const LayerCall& call, size_t token,
             const std::vector<IntervalRow>& slot_rows, Expected* expected) {
  const bool weighed = spec.recipe != IntermediateRecipe::kDeepGemmMega;
  bool finite = true;
  for (uint32_t k = 0; k < spec.hidden; ++k) {
    Interval sum = reference::Point(0);
    double magnitude = 0;
    for (uint32_t s = 0; s < spec.top_k; ++s) {
      const size_t slot = token * spec.top_k + s;
      if (slot_rows[slot].empty()) continue;
      const Interval part =
          weighed ? slot_rows[slot][k] * reference::Point(call.weights[slot]) : slot_rows[slot][k];
      sum = sum + part;
      magnitude += std::max(std::fabs(part.low), std::fabs(part.high));
    }
    sum = reference::Widen(sum, (spec.top_k + 1) * kHalfUlp * magnitude);
    const size_t at = token * spec.hidden + k;
    expected->low[at] = Rounded(spec.output, sum.low);
    expected->value[at] = Rounded(spec.output, sum.value);
    expected->high[at] = Rounded(spec.output, sum.high);
    finite &= std::isfinite(expected->value[at]);
  }
  expected->finite_row[token] = finite;
}

class ReferenceOracle final : public Oracle {
 public:
  Result<Expected> Expect(const MoeSpec& spec, const LayerWeights& weights, const LayerCall& call,
                          const Accumulation& candidate) const override {
    BLOCKSCALE_RETURN_IF_ERROR(ValidateMoeSpec(spec));
    BLOCKSCALE_RETURN_IF_ERROR(CheckCall(spec, call));
    const auto inputs = DecodeInputs(*call.inputs);
    std::map<uint32_t, std::vector<size_t>> slots_of;  // by local expert
    for (size_t i = 0; i < call.ids.size(); ++i)
      if (spec.is_local(call.ids[i]))
        slots_of[static_cast<uint32_t>(call.ids[i]) - spec.first_expert()].push_back(i);
    std::vector<IntervalRow> slot_rows(call.ids.size());
    for (const auto& [local, slots] : slots_of) {
      BLOCKSCALE_ASSIGN_OR_RETURN(const ExpertWeights expert, weights.Expert(local));
      reference::ExpertJob job{&spec, &expert, spec.activation.at(local)};
      job.gate_lowest_at = GateLowestAt(spec.activation.kind, job.activation);
      job.candidate = candidate;
      job.intermediate_global = call.intermediate_global;
      std::vector<const std::vector<double>*> rows;
      std::vector<float> slot_weights;
      for (const size_t slot : slots) {
        rows.push_back(&inputs[slot / spec.top_k]);
        slot_weights.push_back(call.weights[slot]);
      }
      auto out = reference::RunExpert(job, rows, slot_weights);
      for (size_t j = 0; j < slots.size(); ++j) slot_rows[slots[j]] = std::move(out[j]);
    }
    const size_t elements = call.tokens() * spec.hidden;
    Expected expected;
    expected.value.resize(elements);
    expected.low.resize(elements);
    expected.high.resize(elements);
    expected.finite_row.resize(call.tokens());
    for (size_t t = 0; t < call.tokens(); ++t) Combine(spec, call, t, slot_rows, &expected);
    return expected;
  }
};

class ReferenceLayer final : public PreparedLayer {
 public:
  ReferenceLayer(const MoeSpec& spec, const LayerWeights& weights)
      : spec_(spec), weights_(weights) {}

  Result<RunInfo> Run(const LayerCall& call, std::byte* output) const override {
    BLOCKSCALE_ASSIGN_OR_RETURN(const Expected expected,
                                ReferenceOracle().Expect(spec_, weights_, call, {}));
    const std::vector<float> values(expected.value.begin(), expected.value.end());
    StoreOutput(spec_.output, values.data(), values.size(), output);
    RunInfo info{"reference", "double precision, scalar", 0};
    for (const int32_t id : call.ids) info.local_slots += spec_.is_local(id);
    return info;
  }
  size_t bytes() const override { return 0; }

 private:
  MoeSpec spec_;
  const LayerWeights& weights_;
};

class ReferenceBackend final : public Backend {
 public:
  std::string_view name() const override { return "reference"; }
  Status Supports(const MoeSpec& spec) const override { return ValidateMoeSpec(spec); }
  Result<std::unique_ptr<PreparedLayer>> Prepare(const MoeSpec& spec,
                                                 const LayerWeights& weights) const override {
    return std::unique_ptr<PreparedLayer>(std::make_unique<ReferenceLayer>(spec, weights));
  }
  Accumulation accumulation(const MoeSpec&) const override { return {}; }
};

}  // namespace

std::unique_ptr<Oracle> MakeReferenceOracle() { return std::make_unique<ReferenceOracle>(); }
std::unique_ptr<Backend> MakeReferenceBackend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace blockscale
