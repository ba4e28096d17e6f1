// What codes of every element and scale format stand for, from their definitions, and how far apart
// neighbouring codes are. Nothing here is shared with the converter.
#pragma once

#include <cstddef>
#include <cstdint>

#include "numeric/format.h"

namespace blockscale {

// A binary floating-point format: 1 + exponent_bits + mantissa_bits, or a whole number.
struct ElementGrid {
  double largest = 0;   // magnitude; of whole numbers the positive end
  double smallest = 0;  // the negative end
  int mantissa_bits = 0;
  int lowest_exponent = 0;  // below it steps shrink no more
  bool whole = false;       // whole numbers: steps of one

  // The distance of the codes around a magnitude within the range.
  double StepAt(double magnitude) const;
};

ElementGrid GridOf(Format format);

// Element `index` of a row of codes, or scale `index` of a list, exactly; NaN for NaN codes.
double ValueAt(Format format, const std::byte* row, size_t index);

}  // namespace blockscale
