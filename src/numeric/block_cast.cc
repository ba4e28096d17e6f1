#include "numeric/block_cast.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace blockscale {
namespace {

constexpr size_t kMxGroup = 32;
constexpr size_t kGroupBytes = kMxGroup / 2;
constexpr int kTopExponent = 8;  // of E4M3 powers of two, 256

unsigned RoundAgain(unsigned code, int shift) {
  return E2M1::Encode(std::ldexp(E2M1::Decode(static_cast<uint8_t>(code)), shift));
}

// Codes of a block whose scale is 2^-shift times the smallest that there is.
void RoundBlock(const std::byte* codes, int shift, std::byte* out) {
  for (size_t i = 0; i < kGroupBytes; ++i) {
    const unsigned pair = std::to_integer<unsigned>(codes[i]);
    out[i] =
        static_cast<std::byte>(RoundAgain(pair & 15, shift) | RoundAgain(pair >> 4, shift) << 4);
  }
}

}  // namespace

int LargestExponent(const std::byte* scales, size_t count) {
  int largest = -127;
  for (size_t i = 0; i < count; ++i) {
    const int code = std::to_integer<int>(scales[i]);
    if (code != 0 && code != 255) largest = std::max(largest, code - 127);
  }
  return largest;
}

GlobalScale CastGlobal(int largest_exponent, GlobalScale::Kind kind) {
  // Both 2^m and 2^-m must be normal numbers; beyond, blocks just lie lower in E4M3's range.
  const int m = std::clamp(largest_exponent - kTopExponent, -126, 126);
  return {kind, std::ldexp(1.0f, kind == GlobalScale::Kind::kDivisor ? -m : m)};
}

void CastMxfp4ToNvfp4(const std::byte* codes, const std::byte* scales, size_t rows, size_t columns,
                      int largest_exponent, std::byte* out_codes, std::byte* out_scales) {
  const int m = std::clamp(largest_exponent - kTopExponent, -126, 126);
  const size_t groups = rows * (columns / kMxGroup);
  for (size_t group = 0; group < groups; ++group) {
    const int exponent = std::to_integer<int>(scales[group]) - 127 - m;
    const int kept = std::max(exponent, kTopExponent - kCastSpan);
    const auto scale = static_cast<std::byte>(UE4M3::Encode(std::ldexp(1.0f, kept)));
    out_scales[2 * group] = out_scales[2 * group + 1] = scale;
    const std::byte* from = codes + group * kGroupBytes;
    std::byte* to = out_codes + group * kGroupBytes;
    if (kept == exponent)
      std::memmove(to, from, kGroupBytes);
    else
      RoundBlock(from, exponent - kept, to);
  }
}

}  // namespace blockscale
