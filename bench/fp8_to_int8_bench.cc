// How fast FP8 blocks become INT8 rows, beside memcpy of the same bytes in the same run.
//
// Memory: both matrices are far larger than a core's own caches and lie on huge pages if the system
// grants them. L2: both fit into a second-level cache together. Every instruction set that this
// processor has is measured, and so is the scalar reference. The last lines are ratios from rounds
// in which the kernel and memcpy take turns, so that a noisy machine slows both.

// Highway names AVX3_DL only to those that ask for it.
#define HWY_WANT_AVX3_DL 1
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <hwy/targets.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "blockscale/fp8_to_int8.h"

namespace blockscale {
namespace {

constexpr size_t kColumns = 3072;
constexpr size_t kBlock = 128;
constexpr size_t kMemoryRows = (size_t{256} << 20) / kColumns;
constexpr size_t kL2Rows = 160;  // 480 KiB in and as much out

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
  uint8_t* bytes() const { return static_cast<uint8_t*>(data_); }

 private:
  void* data_;
  size_t bytes_;
};

// A matrix of `rows` x kColumns random codes and its output. Owned.
class Matrix {
 public:
  explicit Matrix(size_t rows)
      : rows_(rows),
        codes_(rows * kColumns),
        out_(rows * kColumns),
        scales_((rows + kBlock - 1) / kBlock * (kColumns / kBlock)),
        row_scales_(rows),
        quality_(rows) {
    std::mt19937_64 random(7);
    // Bell-shaped around exponents that weights have; never a NaN code.
    std::binomial_distribution<int> magnitude(0x7E, 0.6);
    std::vector<uint8_t> line(1 << 16);
    for (uint8_t& code : line)
      code = static_cast<uint8_t>(magnitude(random)) | static_cast<uint8_t>((random() & 1) << 7);
    for (size_t i = 0; i < rows * kColumns; ++i)
      codes_.bytes()[i] = line[(i + i / line.size() * 17) % line.size()];
    std::uniform_real_distribution<float> scale(1e-4f, 9e-4f);
    for (float& value : scales_) value = scale(random);
  }

  size_t bytes() const { return rows_ * kColumns; }
  void Copy() const { std::memcpy(out_.bytes(), codes_.bytes(), bytes()); }
  void Convert(bool fast, bool quality) {
    const Fp8Rows in = {codes_.bytes(),    rows_,  kColumns, 0, scales_.data(),
                        kColumns / kBlock, kBlock, kBlock};
    const Int8Rows out = {reinterpret_cast<int8_t*>(out_.bytes()), row_scales_.data()};
    const auto convert = fast ? ConvertFp8RowsToInt8 : ConvertFp8RowsToInt8Scalar;
    const RowFault fault = convert(in, Int8Range::k127, out, quality ? quality_.data() : nullptr);
    if (fault.kind != RowFault::Kind::kNone) {
      fmt::print(stderr, "row {} column {} is a fault\n", fault.row, fault.column);
      std::exit(2);
    }
    benchmark::ClobberMemory();
  }

 private:
  size_t rows_;
  Pages codes_, out_;
  std::vector<float> scales_, row_scales_;
  std::vector<RowQuality> quality_;
};

// Runs with one instruction set alone, 0 for the processor's best.
class ForcedTarget {
 public:
  explicit ForcedTarget(int64_t target) {
    if (target != 0) hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  ~ForcedTarget() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

using Shared = std::shared_ptr<Matrix>;

void Register(const std::string& name, const Shared& matrix, int64_t target,
              const std::function<void(Matrix&)>& run) {
  benchmark::RegisterBenchmark(name.c_str(), [matrix, target, run](benchmark::State& state) {
    const ForcedTarget forced(target);
    run(*matrix);
    for ([[maybe_unused]] auto _ : state) run(*matrix);
    state.SetItemsProcessed(
        static_cast<int64_t>(static_cast<size_t>(state.iterations()) * matrix->bytes()));
  })->MinTime(0.5);
}

// Instruction sets without a fast side run the scalar one, which is measured in L2 only.
void RegisterPlace(const std::string& place, const Shared& matrix, bool slow_ones) {
  Register(place + "/memcpy", matrix, 0, [](Matrix& m) { m.Copy(); });
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (target > HWY_AVX2 && !slow_ones) continue;
    for (const bool quality : {false, true}) {
      Register(fmt::format("{}/{}{}", place, hwy::TargetName(target), quality ? "/quality" : ""),
               matrix, target, [quality](Matrix& m) { m.Convert(true, quality); });
    }
  }
}

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

// The kernel and memcpy in turn: medians of both rates and of their ratio within a round.
void PrintRatio(const std::string& place, Matrix& matrix, bool quality, int rounds) {
  std::vector<double> kernel_rates, copy_rates, ratios;
  for (int round = 0; round < rounds; ++round) {
    const double copy = SecondsOf([&] { matrix.Copy(); });
    const double kernel = SecondsOf([&] { matrix.Convert(true, quality); });
    const double giga = 1e-9 * static_cast<double>(matrix.bytes());
    copy_rates.push_back(giga / copy);
    kernel_rates.push_back(giga / kernel);
    ratios.push_back(copy / kernel);
  }
  fmt::print("{:<7}{} {}: {:6.2f} G elements/s, memcpy {:6.2f} GB/s, ratio {:.3f}\n", place,
             Fp8ToInt8Target(), quality ? "with quality" : "alone", Median(kernel_rates),
             Median(copy_rates), Median(ratios));
}

}  // namespace
}  // namespace blockscale

int main(int argc, char** argv) {
  using namespace blockscale;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const auto memory = std::make_shared<Matrix>(kMemoryRows);
  const auto cache = std::make_shared<Matrix>(kL2Rows);
  RegisterPlace("memory", memory, false);
  RegisterPlace("L2", cache, true);
  Register("L2/scalar", cache, 0, [](Matrix& m) { m.Convert(false, false); });
  Register("L2/scalar/quality", cache, 0, [](Matrix& m) { m.Convert(false, true); });
  benchmark::RunSpecifiedBenchmarks();
  for (const bool quality : {false, true}) {
    PrintRatio("memory", *memory, quality, 21);
    PrintRatio("L2", *cache, quality, 2001);
  }
  return 0;
}
