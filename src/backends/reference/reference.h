// The oracle: a layer in double precision on the same codes that a candidate gets, with every
// rounding that the recipe names and nothing else, and beside each value the range that FP32
// arithmetic may reach.
//
//   dot products   sum a * w, widened by roundings * 2^-24 * sum |a * w| (Higham, Accuracy and
//                  Stability of Numerical Algorithms, 3.1; roundings from the candidate's
//                  Accumulation)
//   to BF16        the ends of the range are rounded: rounding is monotone
//   activation     Gate over the range (its one lowest place included) times Up over the range,
//                  widened by kActivationUlps
//   quantisation   every scale and every code that the range allows (requantise.h)
//   the sum        of weight * row, widened likewise, rounded to the output type
//
// It shares with the backends the decoding of codes (numeric) and the definition of activations.
#pragma once

#include "moe/backend.h"

namespace blockscale {

// FP32 activations of a candidate may be off by so many units of 2^-24, relative.
inline constexpr double kActivationUlps = 32;

std::unique_ptr<Oracle> MakeReferenceOracle();

// The same as a backend: gives the oracle's values.
std::unique_ptr<Backend> MakeReferenceBackend();

}  // namespace blockscale
