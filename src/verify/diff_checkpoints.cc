#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_set>

#include "blockscale/diff.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/stored_matrix.h"
#include "verify/module_name.h"
#include "verify/stored_values.h"
#include "verify/structure_check.h"

namespace blockscale {
namespace {

constexpr uint64_t kPieceElements = uint64_t{1} << 18;

using Modules = std::map<std::string, const StoredMatrix*>;

std::string Describe(const StoredMatrix& matrix) {
  return fmt::format("{} [{}, {}] ({})", NameOf(matrix.spec.scheme), matrix.rows, matrix.columns,
                     NameOf(matrix.dialect));
}

std::string Describe(const TensorInfo& info) {
  return fmt::format("{} {}", NameOf(info.dtype), ShapeText(info.shape));
}

// One side, with the tensors that no matrix explains.
struct Side {
  explicit Side(Checkpoint opened) : checkpoint(std::move(opened)) {}

  Status Find() {
    std::vector<Finding> findings;  // what is no matrix is compared as a tensor
    BLOCKSCALE_ASSIGN_OR_RETURN(stored, FindStoredMatrices(checkpoint, &findings));
    std::unordered_set<const TensorInfo*> explained;
    for (const StoredMatrix& matrix : stored.matrices) {
      modules.emplace(UsualModuleName(matrix.module), &matrix);
      for (const TensorRef& part :
           {matrix.codes, matrix.scales, matrix.global, matrix.input_scale, matrix.shape})
        if (part) explained.insert(part.info);
    }
    for (const TensorRef& tensor : checkpoint.tensors())
      if (!explained.contains(tensor.info)) others.emplace(tensor.info->name, tensor);
    return OkStatus();
  }

  Checkpoint checkpoint;
  StoredMatrices stored;
  Modules modules;
  std::map<std::string, TensorRef> others;
};

// Fills in what the values say; true when they are all the same.
Result<bool> CompareValues(const Side& a, const StoredMatrix& in_a, const Side& b,
                           const StoredMatrix& in_b, TensorDifference& difference) {
  ValueReader reader_a(a.checkpoint, in_a), reader_b(b.checkpoint, in_b);
  BLOCKSCALE_RETURN_IF_ERROR(reader_a.Open());
  BLOCKSCALE_RETURN_IF_ERROR(reader_b.Open());
  DecodedRows rows_a, rows_b;
  double squares = 0, errors = 0;
  const uint64_t step = std::max<uint64_t>(1, kPieceElements / in_a.columns);
  for (uint64_t row = 0; row < in_a.rows; row += step) {
    const uint64_t count = std::min(step, in_a.rows - row);
    BLOCKSCALE_RETURN_IF_ERROR(reader_a.Read(row, count, &rows_a));
    BLOCKSCALE_RETURN_IF_ERROR(reader_b.Read(row, count, &rows_b));
    for (size_t i = 0; i < rows_a.values.size(); ++i) {
      const double x = rows_a.values[i], y = rows_b.values[i];
      if (x == y || (std::isnan(x) && std::isnan(y))) {
        if (std::isfinite(x)) squares += x * x;
        continue;
      }
      ++difference.differing;
      if (!std::isfinite(x) || !std::isfinite(y)) continue;
      squares += x * x;
      errors += (x - y) * (x - y);
      difference.largest = std::max(difference.largest, std::fabs(x - y));
    }
  }
  difference.relative_rmse = squares > 0 ? std::sqrt(errors / squares) : std::sqrt(errors);
  return difference.differing == 0;
}

struct Outcome {
  std::optional<TensorDifference> difference;
  Status status;
};

Outcome CompareMatrices(const Side& a, const StoredMatrix& in_a, const Side& b,
                        const StoredMatrix& in_b) {
  TensorDifference difference{
      .name = UsualModuleName(in_a.module), .a = Describe(in_a), .b = Describe(in_b)};
  if (in_a.rows != in_b.rows || in_a.columns != in_b.columns) {
    difference.kind = "shape";
    return {std::move(difference), {}};
  }
  const Result<bool> same = CompareValues(a, in_a, b, in_b, difference);
  if (!same.ok()) return {std::nullopt, same.status()};
  const bool alike = in_a.spec == in_b.spec && in_a.dialect == in_b.dialect;
  if (*same && alike) return {};
  difference.kind = *same ? "scheme" : "values";
  return {std::move(difference), {}};
}

class Differ {
 public:
  Differ(const Side& a, const Side& b, const DiffOptions& options)
      : a_(a), b_(b), options_(options) {}

  Result<DiffReport> Run() {
    BLOCKSCALE_RETURN_IF_ERROR(Matrices());
    BLOCKSCALE_RETURN_IF_ERROR(Others());
    std::sort(report_.differences.begin(), report_.differences.end(),
              [](const auto& x, const auto& y) { return x.name < y.name; });
    return std::move(report_);
  }

 private:
  void OnlyIn(const char* side, const std::string& name, const std::string& what) {
    const bool in_a = side[0] == 'a';
    report_.differences.push_back({.name = name,
                                   .kind = std::string("only in ") + side,
                                   .a = in_a ? what : "",
                                   .b = in_a ? "" : what});
  }

  Status Matrices() {
    std::vector<std::pair<const StoredMatrix*, const StoredMatrix*>> pairs;
    for (const auto& [name, matrix] : a_.modules) {
      const auto found = b_.modules.find(name);
      if (found != b_.modules.end())
        pairs.emplace_back(matrix, found->second);
      else
        OnlyIn("a", name, Describe(*matrix));
    }
    for (const auto& [name, matrix] : b_.modules)
      if (!a_.modules.contains(name)) OnlyIn("b", name, Describe(*matrix));
    for (Outcome& outcome : CompareAll(pairs)) {
      BLOCKSCALE_RETURN_IF_ERROR(outcome.status);
      Count(std::move(outcome.difference));
    }
    return OkStatus();
  }

  std::vector<Outcome> CompareAll(
      const std::vector<std::pair<const StoredMatrix*, const StoredMatrix*>>& pairs) const {
    namespace tbb = oneapi::tbb;
    std::vector<Outcome> outcomes(pairs.size());
    std::mutex mutex;
    uint64_t done = 0;
    const unsigned threads = options_.threads != 0
                                 ? options_.threads
                                 : std::max(1u, std::thread::hardware_concurrency());
    const tbb::global_control workers(tbb::global_control::max_allowed_parallelism, threads);
    tbb::task_arena arena(static_cast<int>(threads));
    arena.execute([&] {
      tbb::parallel_for(size_t{0}, pairs.size(), [&](size_t i) {
        outcomes[i] = CompareMatrices(a_, *pairs[i].first, b_, *pairs[i].second);
        const std::lock_guard lock(mutex);
        ++done;
        if (options_.progress) options_.progress(done, pairs.size());
      });
    });
    return outcomes;
  }

  Status Others() {
    for (const auto& [name, tensor] : a_.others) {
      const auto found = b_.others.find(name);
      if (found == b_.others.end()) {
        OnlyIn("a", name, Describe(*tensor.info));
        continue;
      }
      std::vector<VerifyFailure> failures;
      BLOCKSCALE_RETURN_IF_ERROR(
          CompareTensor(a_.checkpoint, tensor, b_.checkpoint, found->second, &failures));
      std::optional<TensorDifference> difference;
      if (!failures.empty()) {
        const bool alike = tensor.info->dtype == found->second.info->dtype &&
                           tensor.info->shape == found->second.info->shape;
        difference = TensorDifference{.name = name,
                                      .kind = alike ? "bytes" : "type",
                                      .a = Describe(*tensor.info),
                                      .b = Describe(*found->second.info)};
      }
      Count(std::move(difference));
    }
    for (const auto& [name, tensor] : b_.others)
      if (!a_.others.contains(name)) OnlyIn("b", name, Describe(*tensor.info));
    return OkStatus();
  }

  void Count(std::optional<TensorDifference> difference) {
    ++report_.compared;
    if (difference)
      report_.differences.push_back(std::move(*difference));
    else
      ++report_.same;
  }

  const Side &a_, &b_;
  const DiffOptions& options_;
  DiffReport report_;
};

}  // namespace

Result<DiffReport> DiffCheckpoints(const DiffOptions& options) {
  FileSystem& files = PosixFileSystem();
  BLOCKSCALE_ASSIGN_OR_RETURN(Checkpoint opened_a, Checkpoint::Open(files, options.a));
  BLOCKSCALE_ASSIGN_OR_RETURN(Checkpoint opened_b, Checkpoint::Open(files, options.b));
  Side a(std::move(opened_a)), b(std::move(opened_b));
  BLOCKSCALE_RETURN_IF_ERROR(a.Find());
  BLOCKSCALE_RETURN_IF_ERROR(b.Find());
  return Differ(a, b, options).Run();
}

}  // namespace blockscale
