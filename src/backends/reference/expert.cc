#include "backends/reference/expert.h"

#include <oneapi/tbb/parallel_for.h>

#include "backends/reference/reference.h"
#include "backends/reference/requantise.h"

namespace blockscale::reference {
namespace {

constexpr double kHalfUlp = 0x1p-24;
constexpr size_t kLanes = 8;

struct Sums {
  double product = 0;
  double magnitude = 0;  // sum |a * w|
  double spread = 0;     // sum radius(a) * |w|, or 0
};

// Sums over kLanes lanes, so that the compiler may use vectors.
Sums Dot(const double* a, const double* w, size_t count) {
  double product[kLanes] = {}, magnitude[kLanes] = {};
  for (size_t i = 0; i < count; i += kLanes)
    for (size_t l = 0; l < kLanes && i + l < count; ++l) {
      const double p = a[i + l] * w[i + l];
      product[l] += p;
      magnitude[l] += std::fabs(p);
    }
  Sums sums;
  for (size_t l = 0; l < kLanes; ++l) {
    sums.product += product[l];
    sums.magnitude += magnitude[l];
  }
  return sums;
}

// Rows split into value and the distances to the ends of their ranges.
struct Operand {
  std::vector<double> value, below, above;
};

Operand Split(const IntervalRow& row) {
  Operand operand;
  for (const Interval& x : row) {
    operand.value.push_back(x.value);
    operand.below.push_back(x.value - x.low);
    operand.above.push_back(x.high - x.value);
  }
  return operand;
}

Interval DotRange(const Operand& a, const double* w, size_t count, double roundings) {
  const Sums sums = Dot(a.value.data(), w, count);
  Interval range = Point(sums.product);
  double reach = 0;
  for (size_t i = 0; i < count; ++i) {
    const double up = w[i] >= 0 ? a.above[i] : a.below[i];
    const double down = w[i] >= 0 ? a.below[i] : a.above[i];
    range.high += std::fabs(w[i]) * up;
    range.low -= std::fabs(w[i]) * down;
    reach += std::fabs(w[i]) * (up + down);
  }
  return Widen(range, roundings * kHalfUlp * (sums.magnitude + reach));
}

std::vector<double> DecodeDouble(const MatrixRows& matrix, uint64_t r) {
  std::vector<float> row(matrix.columns);
  DecodeMatrixRow(matrix, r, row.data());
  return {row.begin(), row.end()};
}

bool Rounds(const MoeSpec& spec) { return spec.recipe != IntermediateRecipe::kExact; }

Interval Activate(const ExpertJob& job, const Interval& gate, const Interval& up) {
  const ActivationKind kind = job.spec->activation.kind;
  const auto& p = job.activation;
  const double a = ActivationGate(kind, p, gate.low);
  const double b = ActivationGate(kind, p, gate.high);
  Interval first{std::min(a, b), ActivationGate(kind, p, gate.value), std::max(a, b)};
  if (gate.low < job.gate_lowest_at && job.gate_lowest_at < gate.high)
    first.low = ActivationGate(kind, p, job.gate_lowest_at);
  Interval second = Point(1);
  if (IsGated(kind))
    second = {ActivationUp(kind, p, up.low), ActivationUp(kind, p, up.value),
              ActivationUp(kind, p, up.high)};
  // Errors are relative to each factor; but up + beta may cancel, and GELU's 1 + erf does.
  const bool gelu = kind == ActivationKind::kGeGlu || kind == ActivationKind::kGeGluTanh;
  const double size = gelu ? std::max(std::fabs(gate.low), std::fabs(gate.high))
                           : std::max(std::fabs(first.low), std::fabs(first.high));
  const double scale = kActivationUlps * kHalfUlp;
  const double offset = kind == ActivationKind::kSwiGlu ? std::fabs(p[1]) : 0;
  first = Widen(first, scale * size);
  second =
      Widen(second, scale * (offset + std::max(std::fabs(second.low), std::fabs(second.high))));
  return first * second;
}

// FC1's column n for every row.
void ActivateColumn(const ExpertJob& job, uint64_t n,
                    const std::vector<const std::vector<double>*>& rows,
                    const std::vector<float>& slot_weights, std::vector<IntervalRow>* hidden) {
  const MoeSpec& spec = *job.spec;
  const bool gated = spec.activation.gated();
  const double slack = job.candidate.roundings(spec.hidden) * kHalfUlp;
  const std::vector<double> gate_row = DecodeDouble(job.weights->gate, n);
  const std::vector<double> up_row =
      gated ? DecodeDouble(job.weights->up, n) : std::vector<double>();
  const auto sum = [&](const std::vector<double>& x, const std::vector<double>& w, double bias) {
    const Sums sums = Dot(x.data(), w.data(), w.size());
    Interval range = Widen(Point(sums.product), slack * sums.magnitude);
    if (Rounds(spec)) range = ToBf16(range);
    range = range + Point(bias);
    return bias == 0 ? range : Widen(range, kHalfUlp * std::fabs(range.value));
  };
  for (size_t j = 0; j < rows.size(); ++j) {
    const Interval gate = sum(*rows[j], gate_row, job.weights->gate.bias_of(n));
    const Interval up = gated ? sum(*rows[j], up_row, job.weights->up.bias_of(n)) : Point(0);
    Interval h = Activate(job, gate, up);
    if (spec.recipe == IntermediateRecipe::kDeepGemmMega) {
      h = h * Point(slot_weights[j]);
      h = Widen(h, kHalfUlp * std::fabs(h.value));
    }
    (*hidden)[j][n] = spec.recipe == IntermediateRecipe::kFlashInferCutlass ? ToBf16(h) : h;
  }
}

}  // namespace

std::vector<IntervalRow> RunExpert(const ExpertJob& job,
                                   const std::vector<const std::vector<double>*>& rows,
                                   const std::vector<float>& slot_weights) {
  const MoeSpec& spec = *job.spec;
  const uint64_t inner = spec.local_intermediate();
  std::vector<IntervalRow> hidden(rows.size(), IntervalRow(inner));
  oneapi::tbb::parallel_for(
      uint64_t{0}, inner, [&](uint64_t n) { ActivateColumn(job, n, rows, slot_weights, &hidden); });
  std::vector<Operand> operands(rows.size());
  oneapi::tbb::parallel_for(size_t{0}, rows.size(), [&](size_t j) {
    if (Rounds(spec)) Requantise(spec.inputs, job.intermediate_global, hidden[j]);
    operands[j] = Split(hidden[j]);
  });
  std::vector<IntervalRow> out(rows.size(), IntervalRow(spec.hidden));
  const double roundings = job.candidate.roundings(inner);
  oneapi::tbb::parallel_for(uint64_t{0}, uint64_t{spec.hidden}, [&](uint64_t k) {
    const std::vector<double> row = DecodeDouble(job.weights->down, k);
    const double bias = spec.tp_rank == 0 ? job.weights->down.bias_of(k) : 0;
    for (size_t j = 0; j < rows.size(); ++j) {
      Interval y = DotRange(operands[j], row.data(), inner, roundings);
      if (Rounds(spec)) y = ToBf16(y);
      y = y + Point(bias);
      out[j][k] = bias == 0 ? y : Widen(y, kHalfUlp * std::fabs(y.value));
    }
  });
  return out;
}

}  // namespace blockscale::reference
