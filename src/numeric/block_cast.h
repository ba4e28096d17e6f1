// MXFP4 to NVFP4 without a change of value. A block of 32 with the scale 2^k becomes two blocks of
// 16 with the E4M3 scale 2^(k - m), under the global scale 2^m, m = k_max - 8, where k_max is the
// largest exponent of the matrices that share the global scale. The codes stay.
//
// E4M3 holds 2^-9 ... 2^8, so this is exact while k_max - k <= 17. A block further below gets the
// smallest scale, 2^-9, and its codes are rounded again. Source: ModelOpt's cast of MXFP4
// checkpoints; docs/formats.md, "From MXFP4 to NVFP4".
#pragma once

#include <cstddef>
#include <cstdint>

#include "numeric/quant_spec.h"

namespace blockscale {

inline constexpr int kCastSpan = 17;  // k_max - k up to which a block is exact

// The largest exponent k of E8M0 scales; bytes of 0 mark blocks of zeros and do not count. -127
// when nothing counts. NaN bytes (255) are skipped: reading refuses them.
int LargestExponent(const std::byte* scales, size_t count);

// The global scale 2^m as the dialect's convention wants it: both ways are exact.
GlobalScale CastGlobal(int largest_exponent, GlobalScale::Kind kind);

// Casts `rows` x `columns` codes, columns a multiple of 32. `scales` [rows][columns / 32] E8M0;
// `out_scales` [rows][columns / 16]; codes may be cast in place.
void CastMxfp4ToNvfp4(const std::byte* codes, const std::byte* scales, size_t rows, size_t columns,
                      int largest_exponent, std::byte* out_codes, std::byte* out_scales);

}  // namespace blockscale
