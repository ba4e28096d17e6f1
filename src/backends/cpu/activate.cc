// The activations over vectors. Highway compiles this file once for each instruction set and picks
// one at run time.

#include "backends/cpu/activate.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/activate.cc"
// clang-format off: this include must stand before highway.h
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace blockscale::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;

#undef BLOCKSCALE_ACTIVATION_FUNCTION
#define BLOCKSCALE_ACTIVATION_FUNCTION HWY_INLINE
#include "moe/activations.inc"

struct VectorMath {
  using V = hn::Vec<D>;
  static HWY_INLINE V Set(float x) { return hn::Set(D(), x); }
  static HWY_INLINE V Exp(V x) {
    // Highway's Exp is for arguments up to 104; beyond, the limits are what they are.
    const V inside = hn::Exp(D(), hn::Min(hn::Max(x, Set(-104)), Set(88.7f)));
    const V high = hn::IfThenElse(x > Set(88.7f), Set(kNoLimit), inside);
    return hn::IfThenElse(hn::IsNaN(x), x, high);
  }
  static HWY_INLINE V Tanh(V x) {
    return hn::IfThenElse(hn::IsNaN(x), x, hn::Tanh(D(), hn::Min(hn::Max(x, Set(-20)), Set(20))));
  }
  static HWY_INLINE V Erf(V x) {  // no vector form in Highway
    HWY_ALIGN float lanes[hn::MaxLanes(D())];
    hn::Store(x, D(), lanes);
    for (size_t i = 0; i < hn::Lanes(D()); ++i) lanes[i] = std::erf(lanes[i]);
    return hn::Load(D(), lanes);
  }
  static HWY_INLINE V Min(V x, V limit) { return hn::IfThenElse(x > limit, limit, x); }
  static HWY_INLINE V Max(V x, V limit) { return hn::IfThenElse(x < limit, limit, x); }
};

HWY_INLINE hn::Vec<D> Bf16Of(hn::Vec<D> x) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::And(bits + odd + hn::Set(du, 0x7FFF), hn::Set(du, 0xFFFF0000u));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::BitCast(D(), rounded));
}

template <class Formula>
HWY_INLINE hn::Vec<D> ApplyFormula(const float* p, hn::Vec<D> gate, hn::Vec<D> up) {
  const auto first = Formula::Gate(VectorMath(), gate, p);
  if constexpr (requires { Formula::Up(VectorMath(), up, p); })
    return first * Formula::Up(VectorMath(), up, p);
  else
    return first;
}

template <class Formula>
void ActivateWith(const ActivateJob& job, const float* gate, const float* up, size_t count,
                  float* out) {
  const D d;
  const bool rounds = job.recipe != IntermediateRecipe::kExact;
  const bool gated = IsGated(job.kind);
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < count; i += lanes) {
    // Whole vectors only: callers pass 64 columns, which every vector length divides.
    auto g = hn::LoadU(d, gate + i);
    auto u = gated ? hn::LoadU(d, up + i) : g;
    if (rounds) g = Bf16Of(g);
    if (rounds) u = Bf16Of(u);
    if (job.gate_bias != nullptr) g = g + hn::LoadU(d, job.gate_bias + i);
    if (gated && job.up_bias != nullptr) u = u + hn::LoadU(d, job.up_bias + i);
    auto h = ApplyFormula<Formula>(job.parameters.data(), g, u);
    if (job.recipe == IntermediateRecipe::kDeepGemmMega) h = h * hn::Set(d, job.slot_weight);
    if (job.recipe == IntermediateRecipe::kFlashInferCutlass) h = Bf16Of(h);
    hn::StoreU(h, d, out + i);
  }
}

void ActivateHere(const ActivateJob& job, const float* gate, const float* up, size_t count,
                  float* out) {
#define BLOCKSCALE_ACTIVATE_CASE(enumerator, id, name, gated, formula, ...) \
  case ActivationKind::enumerator:                                          \
    return ActivateWith<formula>(job, gate, up, count, out);
  switch (job.kind) { BLOCKSCALE_ACTIVATIONS(BLOCKSCALE_ACTIVATE_CASE) }
#undef BLOCKSCALE_ACTIVATE_CASE
}

void RoundHere(float* values, size_t count) {
  const D d;
  for (size_t i = 0; i < count; i += hn::Lanes(d))
    hn::StoreU(Bf16Of(hn::LoadU(d, values + i)), d, values + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace blockscale::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blockscale::cpu {

HWY_EXPORT(ActivateHere);
HWY_EXPORT(RoundHere);

void Activate(const ActivateJob& job, const float* gate, const float* up, size_t count,
              float* out) {
  HWY_DYNAMIC_DISPATCH(ActivateHere)(job, gate, up, count, out);
}

void RoundToBf16(float* values, size_t count) { HWY_DYNAMIC_DISPATCH(RoundHere)(values, count); }

}  // namespace blockscale::cpu
#endif
