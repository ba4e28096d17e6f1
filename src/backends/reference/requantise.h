// The re-quantisation between the two matrices, over ranges: which values may come back.
#pragma once

#include <span>

#include "backends/reference/interval.h"
#include "moe/spec.h"
#include "numeric/quant_spec.h"

namespace blockscale::reference {

// Quantises `row` as moe/row_quant.h says and decodes it again, in place. Where the range of a
// group's largest magnitude allows two scales, either may have been taken; where a value's range
// holds a boundary between codes, either code. Groups that are not finite are taken at `value`.
void Requantise(RowScheme scheme, const GlobalScale& global, std::span<Interval> row);

}  // namespace blockscale::reference
