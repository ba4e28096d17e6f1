// How the scale of a block is chosen, one list: (enumerator, id, name, what it does). With amax the
// largest magnitude of a block and M the largest value of the element format:
//
//   E8M0 scales 2^e (mxfp4, mxfp8; fp8-* with power-of-two scales); E = floor(log2(M)), 2 for E2M1
//   and 8 for E4M3:
//     floor   e = floor(log2(amax)) - E                      OCP Microscaling 1.0; the top may clip
//     ceil    the smallest e with amax <= M * 2^e            nothing clips
//     even    as floor, of amax whose mantissa >= 1.75 counts as 2   compressed-tensors
//     mse     of floor's e - 1, e, e + 1 the one with the least error
//   Other scales:
//     absmax         amax / M (int8: 127 or 127.5; int4: 7.5; NVFP4: against the global scale)
//     mse            of the 40 scales absmax * (1 - k/100) the one with the least error
//     four-over-six  NVFP4: of amax / 6 and amax / 4 the one with the least error; the global scale
//                    leaves room for the latter (arXiv 2512.02010)
//     sweep          NVFP4: of all 126 positive scale codes the one with the least error
//   exact-cast       MXFP4 to NVFP4: the same codes, the scales moved to E4M3 (block_cast.h)
#pragma once

#include "base/enum_list.h"
#include "numeric/scheme.h"

namespace blockscale {

#define BLOCKSCALE_SCALE_RULES(X)     \
  X(kAbsmax, 0, "absmax")             \
  X(kFloor, 1, "floor")               \
  X(kCeil, 2, "ceil")                 \
  X(kEven, 3, "even")                 \
  X(kMse, 4, "mse")                   \
  X(kFourOverSix, 5, "four-over-six") \
  X(kSweep, 6, "sweep")               \
  X(kExactCast, 7, "exact-cast")

BLOCKSCALE_ENUM_LIST(ScaleRule, BLOCKSCALE_SCALE_RULES)

// Whether a rule can choose the scales of a scheme. Plain formats have none to choose: absmax.
constexpr bool RuleFits(ScaleRule rule, Scheme scheme) {
  const bool fp8 =
      scheme == Scheme::kFp8Block || scheme == Scheme::kFp8Channel || scheme == Scheme::kFp8Tensor;
  const bool mx = scheme == Scheme::kMxfp4 || scheme == Scheme::kMxfp8;
  const bool integer = scheme == Scheme::kInt8Channel || scheme == Scheme::kInt4Group;
  switch (rule) {
    case ScaleRule::kAbsmax:
      return !mx;
    case ScaleRule::kFloor:
    case ScaleRule::kEven:
      return mx;
    case ScaleRule::kCeil:
      return mx || fp8;
    case ScaleRule::kMse:
      return mx || integer;
    case ScaleRule::kFourOverSix:
    case ScaleRule::kSweep:
    case ScaleRule::kExactCast:
      return scheme == Scheme::kNvfp4;
  }
  return false;
}

constexpr ScaleRule DefaultRule(Scheme scheme) {
  return RuleFits(ScaleRule::kAbsmax, scheme) ? ScaleRule::kAbsmax : ScaleRule::kCeil;
}

}  // namespace blockscale
