// How fast each scheme is decoded, encoded and measured on one core, beside memcpy of as many bytes
// (half of those read and written together) in turn, so that a noisy machine slows both.
//
// memory: 256 MiB of FP32, far more than a core's own caches, on huge pages if the system grants
// them. chunk: 1 MiB of FP32, as the converter works.
// Times are those of the thread; rates and ratios are medians over rounds.
//
// usage: block_quant_bench [FILTER]    only lines that contain FILTER, such as "AVX2 decode"

// Highway names AVX3_DL only to those that ask for it.
#define HWY_WANT_AVX3_DL 1
#include <fmt/format.h>
#include <hwy/targets.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "numeric/block_quant.h"

namespace blockscale {
namespace {

constexpr size_t kColumns = 4096;
constexpr size_t kMemoryRows = (size_t{256} << 20) / (4 * kColumns);
constexpr size_t kChunkRows = (size_t{1} << 20) / (4 * kColumns);
constexpr size_t kSearchRows = 512;  // 8 MiB: searches do not wait for memory
constexpr double kSecondsEach = 0.6;

// Zeroed memory on huge pages where the system has them.
class Pages {
 public:
  explicit Pages(size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) {
      fmt::print(stderr, "cannot map {} bytes: {}\n", bytes, std::strerror(errno));
      std::exit(2);
    }
    madvise(data_, bytes, MADV_HUGEPAGE);
    std::memset(data_, 0, bytes);
  }
  ~Pages() { munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* bytes() const { return static_cast<std::byte*>(data_); }
  float* floats() const { return static_cast<float*>(data_); }

 private:
  void* data_;
  size_t bytes_;
};

// Runs with one instruction set alone.
class ForcedTarget {
 public:
  explicit ForcedTarget(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  ~ForcedTarget() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

// Of this thread alone: another process on the same core does not count.
double SecondsOf(const std::function<void()>& run) {
  const auto now = [] {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double start = now();
  run();
  return now() - start;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// All that is measured works on the same memory.
struct Arena {
  Pages values{4 * kMemoryRows * kColumns};
  Pages decoded{4 * kMemoryRows * kColumns};
  Pages codes{4 * kMemoryRows * kColumns};
  std::vector<std::byte> scales;
  std::vector<float> effective;
  std::string_view filter;

  explicit Arena(std::string_view filter_)
      : scales(4 * kMemoryRows * kColumns / 16),
        effective(kMemoryRows * kColumns / 16),
        filter(filter_) {
    std::mt19937_64 random(7);
    std::normal_distribution<float> normal(0, 0.02f);
    std::vector<float> line(1 << 18);
    for (float& value : line) value = normal(random);
    for (size_t i = 0; i < kMemoryRows * kColumns; ++i)
      values.floats()[i] = line[(i + i / line.size() * 17) % line.size()];
  }

  EncodeOptions Options(Scheme scheme, ScaleRule rule) const {
    EncodeOptions options{.spec = SpecOf(scheme), .rule = rule};
    const float amax = LargestMagnitude(values.floats(), kMemoryRows * kColumns);
    if (scheme == Scheme::kNvfp4)
      options.global = Nvfp4Global(amax, rule, GlobalScale::Kind::kMultiplier);
    if (scheme == Scheme::kFp8Tensor) options.global = TensorScale(amax, rule);
    return options;
  }
  void Encode(const EncodeOptions& options, size_t rows) {
    const bool stored = options.spec.scheme != Scheme::kFp8Tensor;
    EncodeRows(options, values.floats(), rows, kColumns,
               {codes.bytes(), stored ? scales.data() : nullptr, effective.data()});
  }
  QuantRows Encoded(const QuantSpec& spec, size_t rows) const {
    return {spec, codes.bytes(), rows, kColumns, 0, effective.data()};
  }

  // One line. `bytes`: read and written by a run. Repeated until it takes some time at least.
  void Line(const std::string& name, size_t elements, size_t bytes,
            const std::function<void()>& run) const {
    if (name.find(filter) == std::string::npos) return;
    std::vector<double> rates, copy_rates, ratios;
    run();
    double spent = 0;
    while (spent < kSecondsEach || rates.size() < 5) {
      const double copy =
          SecondsOf([&] { std::memcpy(decoded.bytes(), values.bytes(), bytes / 2); });
      const double time = SecondsOf(run);
      spent += time + copy;
      rates.push_back(1e-9 * static_cast<double>(elements) / time);
      copy_rates.push_back(1e-9 * static_cast<double>(bytes / 2) / copy);
      ratios.push_back(copy / time);
    }
    fmt::print("{:<44} {:7.3f} G elements/s  {:6.2f} GB/s moved, memcpy {:6.2f}, ratio {:.3f}\n",
               name, Median(rates),
               Median(rates) * static_cast<double>(bytes) / static_cast<double>(elements) / 2,
               Median(copy_rates), Median(ratios));
    std::fflush(stdout);
  }
};

// Bytes of codes and scales.
size_t StoredBytes(const QuantSpec& spec, size_t rows) {
  return rows * spec.row_bytes(kColumns) +
         spec.grid_rows(rows) * spec.grid_columns(kColumns) * spec.scale_bytes();
}

// `slow`: in chunks only.
void MeasureScheme(Arena& arena, const std::string& target, Scheme scheme, bool slow) {
  for (const ScaleRule rule : AllScaleRule()) {
    if (!RuleFits(rule, scheme) || rule == ScaleRule::kExactCast) continue;
    const EncodeOptions options = arena.Options(scheme, rule);
    const bool search =
        rule == ScaleRule::kMse || rule == ScaleRule::kFourOverSix || rule == ScaleRule::kSweep;
    for (const size_t rows : {search ? kSearchRows : kMemoryRows, kChunkRows}) {
      if (slow && rows != kChunkRows) continue;
      const char* place = rows == kChunkRows ? "chunk" : "memory";
      arena.Line(fmt::format("{} encode {} {} {}", target, NameOf(scheme), NameOf(rule), place),
                 rows * kColumns, 4 * rows * kColumns + StoredBytes(options.spec, rows),
                 [&] { arena.Encode(options, rows); });
    }
  }
  const EncodeOptions options = arena.Options(scheme, DefaultRule(scheme));
  arena.Encode(options, slow ? kChunkRows : kMemoryRows);
  for (const size_t rows : {kMemoryRows, kChunkRows}) {
    if (slow && rows != kChunkRows) continue;
    const char* place = rows == kChunkRows ? "chunk" : "memory";
    const QuantRows encoded = arena.Encoded(options.spec, rows);
    arena.Line(fmt::format("{} decode {} {}", target, NameOf(scheme), place), rows * kColumns,
               4 * rows * kColumns + StoredBytes(options.spec, rows),
               [&] { DecodeRows(encoded, arena.decoded.floats()); });
    DecodeRows(encoded, arena.decoded.floats());
    RowsLoss loss;
    arena.Line(fmt::format("{} measure {} {}", target, NameOf(scheme), place), rows * kColumns,
               8 * rows * kColumns,
               [&] { loss = MeasureRows(encoded, arena.values.floats(), arena.decoded.floats()); });
  }
}

void MeasureTarget(Arena& arena, int64_t target) {
  const ForcedTarget forced(target);
  const bool slow = target > HWY_AVX2;  // the scalar side itself
  const std::string name = slow ? "scalar" : hwy::TargetName(target);
  for (const Scheme scheme : AllScheme()) MeasureScheme(arena, name, scheme, slow);
  float largest = 0;
  for (const size_t rows : {kMemoryRows, kChunkRows})
    arena.Line(fmt::format("{} largest {}", name, rows == kChunkRows ? "chunk" : "memory"),
               rows * kColumns, 4 * rows * kColumns,
               [&] { largest += LargestMagnitude(arena.values.floats(), rows * kColumns); });
  const size_t scales = kChunkRows * kColumns / 16;
  arena.Line(fmt::format("{} scales of nvfp4", name), scales, 5 * scales, [&] {
    DecodeScales(Format::kUE4M3, {GlobalScale::Kind::kDivisor, 3.0f}, arena.codes.bytes(), scales,
                 arena.effective.data());
  });
}

}  // namespace
}  // namespace blockscale

int main(int argc, char** argv) {
  blockscale::Arena arena(argc > 1 ? argv[1] : "");
  // AVX3 without more has the code of AVX3_DL, and what is below AVX2 runs the scalar side.
  for (const int64_t target : hwy::SupportedAndGeneratedTargets())
    if (target != HWY_AVX3 && target <= HWY_SSE4) blockscale::MeasureTarget(arena, target);
  return 0;
}
