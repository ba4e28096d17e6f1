#include "backends/cpu/probe.h"

#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "backends/cpu/huge_buffer.h"
#include "backends/cpu/kernel_probe.h"

namespace blockscale {
namespace {

constexpr size_t kBufferBytes = size_t{512} << 20;
constexpr int kPasses = 9;
constexpr int kDotRounds = 20'000'000 / 24;

using Clock = std::chrono::steady_clock;

// Seconds of one go of `work(part)` on all threads at once; the median.
template <typename Work>
double MedianSeconds(int threads, const Work& work) {
  oneapi::tbb::task_arena arena(threads);
  std::vector<double> seconds;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto start = Clock::now();
    arena.execute([&] { oneapi::tbb::parallel_for(0, threads, work); });
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + kPasses / 2, seconds.end());
  return seconds[kPasses / 2];
}

}  // namespace

double MeasureReadBandwidth(int threads) {
  auto buffer = cpu::HugeBuffer::Make(kBufferBytes);
  if (!buffer.ok()) return 0;
  // Pages that were never written are all one page of zeros.
  for (size_t i = 0; i < kBufferBytes; i += 4096) buffer->data()[i] = std::byte{1};
  std::atomic<uint64_t> sink = 0;
  const size_t part = kBufferBytes / static_cast<size_t>(threads) / 4096 * 4096;
  const double seconds = MedianSeconds(threads, [&](int i) {
    sink += cpu::ReadAll(buffer->data() + static_cast<size_t>(i) * part, part);
  });
  return static_cast<double>(part) * threads / seconds;
}

double MeasureDotPeak(int threads) {
  std::atomic<uint64_t> operations = 0;
  const double seconds =
      MedianSeconds(threads, [&](int) { operations = cpu::DotProducts(kDotRounds); });
  return static_cast<double>(operations) * threads / seconds;
}

}  // namespace blockscale
