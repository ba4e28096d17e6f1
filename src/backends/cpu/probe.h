// The machine's own limits, measured: what a layer's speed is compared with.
#pragma once

#include <cstddef>

namespace blockscale {

// Bytes a second that `threads` threads read from memory, each one stream forward through its part
// of a buffer much larger than the caches; the median of several passes.
double MeasureReadBandwidth(int threads);

// Multiply-adds count as two operations. BF16 dot products where the processor has them, else FP32
// multiply-adds as compiled; from registers, on `threads` threads at once.
double MeasureDotPeak(int threads);

}  // namespace blockscale
