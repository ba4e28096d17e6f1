// The activations between the two matrices of an expert, one list: (enumerator, id, name, gated,
// parameters). Gated or not is a property of the row: FC1 of a gated one has 2 * intermediate rows.
// A parameter is (name, default); its value is one number or one for each local expert. Formulas:
// activations.inc, included as text by every build that computes them.
//
// As text, "swiglu(alpha=1.702,beta=1,limit=7)": parameters that are not named keep their default;
// one value an expert is "limit=7:7:10". "swiglu-oai" is GPT-OSS's swiglu.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_list.h"
#include "blockscale/status.h"

namespace blockscale {

inline constexpr float kNoLimit = __builtin_inff();
inline constexpr size_t kMostParameters = 3;

#define BLOCKSCALE_ACTIVATIONS(X)                                                                \
  X(kSwiGlu, 0, "swiglu", true, SwiGluFormula, {{"alpha", 1}, {"beta", 0}, {"limit", kNoLimit}}) \
  X(kSitu, 1, "situ", true, SituFormula, {{"gate_beta", 4}, {"linear_beta", 25}})                \
  X(kSwiGluStep, 2, "swiglu-step", true, SwiGluStepFormula, {{"limit", 7}})                      \
  X(kGeGlu, 3, "geglu", true, GeGluErfFormula, {})                                               \
  X(kGeGluTanh, 4, "geglu-tanh", true, GeGluTanhFormula, {})                                     \
  X(kRelu2, 5, "relu2", false, Relu2Formula, {})                                                 \
  X(kSilu, 6, "silu", false, SiluFormula, {})                                                    \
  X(kIdentity, 7, "identity", false, IdentityFormula, {})

BLOCKSCALE_ENUM_LIST(ActivationKind, BLOCKSCALE_ACTIVATIONS)

constexpr bool IsGated(ActivationKind kind) {
#define BLOCKSCALE_ACTIVATION_GATED(enumerator, id, name, gated, ...) \
  case ActivationKind::enumerator:                                    \
    return gated;
  switch (kind) { BLOCKSCALE_ACTIVATIONS(BLOCKSCALE_ACTIVATION_GATED) }
#undef BLOCKSCALE_ACTIVATION_GATED
  return false;
}

struct ActivationParameter {
  std::string_view name;
  float usual = 0;
};

// In the order in which the formula takes them.
std::span<const ActivationParameter> ParametersOf(ActivationKind kind);

// The parameters of one expert; those that a formula does not have are unused.
using ActivationValues = std::array<float, kMostParameters>;

// One number, or one for each local expert.
class PerExpert {
 public:
  PerExpert(float value = 0) : values_{value} {}  // NOLINT: implicit on purpose
  explicit PerExpert(std::vector<float> values) : values_(std::move(values)) {}

  float at(size_t expert) const { return values_.size() == 1 ? values_[0] : values_[expert]; }
  const std::vector<float>& values() const { return values_; }
  bool operator==(const PerExpert&) const = default;

 private:
  std::vector<float> values_;  // never empty
};

struct Activation {
  ActivationKind kind = ActivationKind::kSwiGlu;
  std::array<PerExpert, kMostParameters> parameters = {1.0f, 0.0f, kNoLimit};

  bool gated() const { return IsGated(kind); }
  ActivationValues at(size_t expert) const;
  bool operator==(const Activation&) const = default;
};

// With the usual parameters.
Activation MakeActivation(ActivationKind kind);

Activation SwiGlu(PerExpert alpha = 1.0f, PerExpert beta = 0.0f, PerExpert limit = kNoLimit);
Activation SiTU(PerExpert gate_beta = 4.0f, PerExpert linear_beta = 25.0f);
Activation SwiGluStep(PerExpert limit = 7.0f);
inline Activation SwiGluOai() { return SwiGlu(1.702f, 1.0f, 7.0f); }

std::string ToString(const Activation& activation);
// An error names what is not known and what there is.
Result<Activation> ParseActivation(std::string_view text);

// Refuses numbers that make no function: alpha, limit and betas of SiTU must be above 0, all must
// be numbers, and there must be 1 or `local_experts` of each.
Status ValidateActivation(const Activation& activation, size_t local_experts);

// The definition, in double precision. `up` is unused when not gated.
double ApplyActivation(ActivationKind kind, const ActivationValues& p, double gate, double up);
// Its two factors.
double ActivationGate(ActivationKind kind, const ActivationValues& p, double gate);
double ActivationUp(ActivationKind kind, const ActivationValues& p, double up);

// What bounds the function over an interval needs: Up never falls; Gate falls up to `lowest_at`
// and rises from there on (-infinity: it never falls).
double GateLowestAt(ActivationKind kind, const ActivationValues& p);

}  // namespace blockscale
