#include "moe/activation.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "base/status.h"
#include "moe/text_fields.h"

namespace blockscale {
namespace {

#include "moe/activations.inc"

struct DoubleMath {
  using V = double;
  static double Set(float value) { return value; }
  static double Exp(double x) { return std::exp(x); }
  static double Tanh(double x) { return std::tanh(x); }
  static double Erf(double x) { return std::erf(x); }
  static double Min(double x, double limit) { return x > limit ? limit : x; }
  static double Max(double x, double limit) { return x < limit ? limit : x; }
};

template <class Formula>
double UpOf(const ActivationValues& p, double up) {
  if constexpr (requires { Formula::Up(DoubleMath(), up, p.data()); })
    return Formula::Up(DoubleMath(), up, p.data());
  else
    return 1;
}

// Where a function that falls and then rises is least, between `low` and `high`.
template <class Function>
double Lowest(Function&& function, double low, double high) {
  for (int i = 0; i < 200; ++i) {
    const double a = low + (high - low) / 3;
    const double b = high - (high - low) / 3;
    (function(a) < function(b) ? high : low) = function(a) < function(b) ? b : a;
  }
  return (low + high) / 2;
}

constexpr ActivationParameter kNone[1] = {};

struct ParameterRow {
  ActivationParameter values[kMostParameters];
};

size_t CountOf(const ParameterRow& row) {
  size_t count = 0;
  while (count < kMostParameters && !row.values[count].name.empty()) ++count;
  return count;
}

}  // namespace

std::span<const ActivationParameter> ParametersOf(ActivationKind kind) {
#define BLOCKSCALE_ACTIVATION_PARAMETERS(enumerator, id, name, gated, formula, ...) \
  case ActivationKind::enumerator: {                                                \
    static constexpr ParameterRow kRow = {__VA_ARGS__};                             \
    return {kRow.values, CountOf(kRow)};                                            \
  }
  switch (kind) { BLOCKSCALE_ACTIVATIONS(BLOCKSCALE_ACTIVATION_PARAMETERS) }
#undef BLOCKSCALE_ACTIVATION_PARAMETERS
  return {kNone, 0};
}

ActivationValues Activation::at(size_t expert) const {
  ActivationValues values{};
  for (size_t i = 0; i < kMostParameters; ++i) values[i] = parameters[i].at(expert);
  return values;
}

Activation MakeActivation(ActivationKind kind) {
  Activation activation{kind, {}};
  const auto parameters = ParametersOf(kind);
  for (size_t i = 0; i < parameters.size(); ++i) activation.parameters[i] = parameters[i].usual;
  return activation;
}

Activation SwiGlu(PerExpert alpha, PerExpert beta, PerExpert limit) {
  return {ActivationKind::kSwiGlu, {std::move(alpha), std::move(beta), std::move(limit)}};
}

Activation SiTU(PerExpert gate_beta, PerExpert linear_beta) {
  return {ActivationKind::kSitu, {std::move(gate_beta), std::move(linear_beta), PerExpert()}};
}

Activation SwiGluStep(PerExpert limit) {
  return {ActivationKind::kSwiGluStep, {std::move(limit), PerExpert(), PerExpert()}};
}

std::string ToString(const Activation& activation) {
  std::string inside;
  const auto parameters = ParametersOf(activation.kind);
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (activation.parameters[i] == PerExpert(parameters[i].usual)) continue;
    inside += inside.empty() ? "" : ",";
    inside += fmt::format("{}=", parameters[i].name);
    const auto& values = activation.parameters[i].values();
    for (size_t e = 0; e < values.size(); ++e)
      inside += fmt::format("{}{}", e == 0 ? "" : ":", values[e]);
  }
  const std::string name(NameOf(activation.kind));
  return inside.empty() ? name : name + "(" + inside + ")";
}

Result<Activation> ParseActivation(std::string_view text) {
  const size_t open = text.find('(');
  const std::string_view name = text.substr(0, open);
  if (open != text.npos && text.back() != ')')
    return InvalidInput(
        "activation '{}' opens a bracket that it does not close; write NAME or "
        "NAME(PARAMETER=VALUE,...)",
        text);
  const auto kind = name == "swiglu-oai" ? ActivationKind::kSwiGlu : ParseActivationKind(name);
  if (!kind)
    return InvalidInput("activation '{}' is not known; there are {}, swiglu-oai", name,
                        NamesOfAll(AllActivationKind()));
  Activation activation = name == "swiglu-oai" ? SwiGluOai() : MakeActivation(*kind);
  if (open == text.npos) return activation;
  const auto parameters = ParametersOf(*kind);
  BLOCKSCALE_ASSIGN_OR_RETURN(const auto fields,
                              SplitFields(text.substr(open + 1, text.size() - open - 2)));
  for (const TextField& field : fields) {
    size_t i = 0;
    while (i < parameters.size() && parameters[i].name != field.name) ++i;
    if (i == parameters.size())
      return InvalidInput("activation '{}' has no parameter '{}'", name, field.name);
    BLOCKSCALE_ASSIGN_OR_RETURN(std::vector<float> values, ParseFloats(field));
    activation.parameters[i] = PerExpert(std::move(values));
  }
  return activation;
}

Status ValidateActivation(const Activation& activation, size_t local_experts) {
  const auto parameters = ParametersOf(activation.kind);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& values = activation.parameters[i].values();
    const std::string_view name = parameters[i].name;
    if (values.size() != 1 && values.size() != local_experts)
      return InvalidInput("{}: {} has {} values; give 1 or {}, one for each local expert",
                          NameOf(activation.kind), name, values.size(), local_experts);
    const bool offset = activation.kind == ActivationKind::kSwiGlu && name == "beta";
    for (const float value : values)
      if (std::isnan(value) || (!offset && value <= 0) || (name != "limit" && std::isinf(value)))
        return InvalidInput("{}: {} is {}; it must be {}", NameOf(activation.kind), name, value,
                            offset ? "finite" : "a number above 0");
  }
  return OkStatus();
}

double ActivationGate(ActivationKind kind, const ActivationValues& p, double gate) {
#define BLOCKSCALE_ACTIVATION_GATE(enumerator, id, name, gated, formula, ...) \
  case ActivationKind::enumerator:                                            \
    return formula::Gate(DoubleMath(), gate, p.data());
  switch (kind) { BLOCKSCALE_ACTIVATIONS(BLOCKSCALE_ACTIVATION_GATE) }
#undef BLOCKSCALE_ACTIVATION_GATE
  return 0;
}

double ActivationUp(ActivationKind kind, const ActivationValues& p, double up) {
#define BLOCKSCALE_ACTIVATION_UP(enumerator, id, name, gated, formula, ...) \
  case ActivationKind::enumerator:                                          \
    return UpOf<formula>(p, up);
  switch (kind) { BLOCKSCALE_ACTIVATIONS(BLOCKSCALE_ACTIVATION_UP) }
#undef BLOCKSCALE_ACTIVATION_UP
  return 1;
}

double ApplyActivation(ActivationKind kind, const ActivationValues& p, double gate, double up) {
  const double first = ActivationGate(kind, p, gate);
  return IsGated(kind) ? first * ActivationUp(kind, p, up) : first;
}

double GateLowestAt(ActivationKind kind, const ActivationValues& p) {
  if (kind == ActivationKind::kIdentity || kind == ActivationKind::kRelu2)
    return -std::numeric_limits<double>::infinity();
  // x * sigmoid(alpha x) is least at -1.278 / alpha, the GELUs near -0.75, SiTU between -1.278
  // and 0.
  const double reach = kind == ActivationKind::kSwiGlu ? 4.0 / p[0] : 4.0;
  return Lowest([&](double x) { return ActivationGate(kind, p, x); }, -reach, 0);
}

}  // namespace blockscale
