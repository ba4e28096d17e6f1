#include "verify/recoded_check.h"

#include <algorithm>
#include <cmath>

#include "verify/element_grid.h"
#include "verify/matrix_check.h"
#include "verify/stored_values.h"
#include "verify/trouble.h"

namespace blockscale {
namespace {

constexpr uint64_t kPieceElements = uint64_t{1} << 18;

std::string NameOfMatrix(const StoredMatrix& matrix) {
  return matrix.dialect == Dialect::kGptOss ? matrix.module : matrix.codes.info->name;
}

class RecodedCheck {
 public:
  RecodedCheck(const StoredMatrix& from, const StoredMatrix& to, float smallest_scale)
      : to_(to),
        smallest_scale_(smallest_scale),
        grid_(GridOf(to.spec.element)),
        same_(from.spec == to.spec) {
    quality_ = {.name = NameOfMatrix(to),
                .rows = to.rows,
                .columns = to.columns,
                .from = std::string(NameOf(from.spec.scheme)),
                .to = std::string(NameOf(to.spec.scheme))};
  }

  void Take(uint64_t first, const DecodedRows& source, const DecodedRows& converted) {
    const uint64_t columns = to_.columns, width = BlockWidthOf(to_);
    for (uint64_t row = 0; row * columns < source.values.size(); ++row) {
      bool zero = true;
      for (uint64_t begin = 0; begin < columns; begin += width) {
        const uint64_t end = std::min(begin + width, columns);
        const uint64_t blocks = (columns + width - 1) / width;
        const float scale =
            to_.spec.has_scales() ? converted.scales[row * blocks + begin / width] : 1.0f;
        bool exact = true;
        double largest = 0;  // |x| of the block's part of this row
        for (uint64_t column = begin; column < end; ++column) {
          const uint64_t at = row * columns + column;
          if (same_ && source.codes[at] != converted.codes[at]) NoteCode(first + row, column);
          zero &= source.values[at] == 0;
          largest = std::max(largest, std::fabs(source.values[at] / scale));
          exact &= Compare(first + row, column, source.values[at], converted.codes[at],
                           converted.values[at], scale);
        }
        quality_.inexact_blocks += !exact;
        NoteWidth(first + row, begin / width, blocks, largest, exact, scale);
      }
      quality_.zero_rows += zero;
    }
  }

  MatrixQuality Finish(std::vector<VerifyFailure>* failures) {
    CloseBlocks(to_.rows);
    wide_.Tell(quality_.name,
               "blocks have a scale more than four times as large as their values need", failures);
    bad_scales_.Tell(quality_.name, "scales are not positive finite numbers", failures);
    not_finite_.Tell(quality_.name, "elements are not finite", failures);
    off_.Tell(quality_.name, "elements differ from the source by more than half a step", failures);
    codes_.Tell(quality_.name, "codes differ, though the scheme is the same", failures);
    quality_.relative_rmse = squares_ > 0 ? std::sqrt(errors_ / squares_) : 0;
    quality_.sqnr_db = SqnrDb(quality_.relative_rmse);
    return quality_;
  }

 private:
  // Of a block: its largest |x|, and whether any value of it changed.
  struct Width {
    double largest = 0;
    bool exact = true;
    float scale = 0;
  };

  // A scale far larger than needed hides any error in steps of its own. Blocks of several rows are
  // judged when they are complete.
  void NoteWidth(uint64_t row, uint64_t block, uint64_t blocks, double largest, bool exact,
                 float scale) {
    if (!to_.spec.has_scales()) return;
    if (to_.spec.grid_row(row) != open_row_) CloseBlocks(row);
    open_row_ = to_.spec.grid_row(row);
    open_.resize(blocks);
    open_[block] = {std::max(open_[block].largest, largest), open_[block].exact && exact, scale};
  }

  void CloseBlocks(uint64_t before_row) {
    for (size_t block = 0; block < open_.size(); ++block) {
      const Width& width = open_[block];
      if (width.exact || width.largest >= grid_.largest / 4 || width.scale <= smallest_scale_)
        continue;
      wide_.Note([&] {
        return fmt::format(
            "block {} of the rows before {}: its largest value is {:.4g} steps of a "
            "scale of {:.6g}, of {:.4g} that there are",
            block, before_row, width.largest, width.scale, grid_.largest);
      });
    }
    open_.clear();
  }

  // Whether the element is what it was.
  bool Compare(uint64_t row, uint64_t column, double value, double code, double got, float scale) {
    const auto place = [&] { return fmt::format("row {}, column {}", row, column); };
    if (!(std::isfinite(scale) && scale > 0)) {
      if (value != 0 || code != 0 || !std::isfinite(scale))
        bad_scales_.Note([&] { return fmt::format("{} has {}", place(), scale); });
      return true;
    }
    if (!std::isfinite(value) || !std::isfinite(got)) {
      not_finite_.Note(
          [&] { return fmt::format("{}: {} in the source, {} here", place(), value, got); });
      return false;
    }
    squares_ += value * value;
    errors_ += (value - got) * (value - got);
    if (value == got) return true;
    const double x = value / static_cast<double>(scale);
    if (x > grid_.largest || x < grid_.smallest) {
      ++quality_.clipped;
      // INT8 may leave -128 out.
      const double end = x > 0 ? grid_.largest : grid_.smallest;
      if (code == end || (grid_.whole && code == end + 1 && x < 0)) return false;
      off_.Note([&] {
        return fmt::format(
            "{}: {:.9g} is {:.6g} steps and lies beyond the largest code, but its "
            "code stands for {:.6g}",
            place(), value, x, code);
      });
      return false;
    }
    const double half_steps = std::fabs(x - code) / (0.5 * grid_.StepAt(std::fabs(x)));
    quality_.max_half_steps = std::max(quality_.max_half_steps, half_steps);
    if (half_steps > kRecodedBound)
      off_.Note([&] {
        return fmt::format(
            "{}: {:.9g} in the source, {:.9g} here, {:.6f} half steps apart, limit "
            "{:.6f}",
            place(), value, got, half_steps, kRecodedBound);
      });
    return false;
  }

  void NoteCode(uint64_t row, uint64_t column) {
    codes_.Note([&] { return fmt::format("row {}, column {}", row, column); });
  }

  const StoredMatrix& to_;
  float smallest_scale_;
  ElementGrid grid_;
  bool same_;
  MatrixQuality quality_;
  double squares_ = 0, errors_ = 0;
  std::vector<Width> open_;  // of the grid row `open_row_`
  uint64_t open_row_ = 0;
  Trouble bad_scales_, not_finite_, off_, codes_, wide_;
};

}  // namespace

Result<MatrixQuality> CheckRecoded(const Checkpoint& source, const StoredMatrix& from,
                                   const Checkpoint& converted, const StoredMatrix& to,
                                   std::vector<VerifyFailure>* failures) {
  if (from.rows != to.rows || from.columns != to.columns) {
    failures->push_back(
        {NameOfMatrix(to), fmt::format("is [{}, {}] where the source is [{}, {}]", to.rows,
                                       to.columns, from.rows, from.columns)});
    return MatrixQuality{.name = NameOfMatrix(to)};
  }
  ValueReader before(source, from), after(converted, to);
  BLOCKSCALE_RETURN_IF_ERROR(before.Open());
  BLOCKSCALE_RETURN_IF_ERROR(after.Open());
  RecodedCheck check(from, to, after.SmallestScale());
  DecodedRows before_rows, after_rows;
  const uint64_t step = std::max<uint64_t>(1, kPieceElements / std::max<uint64_t>(1, to.columns));
  for (uint64_t row = 0; row < to.rows; row += step) {
    const uint64_t count = std::min(step, to.rows - row);
    BLOCKSCALE_RETURN_IF_ERROR(before.Read(row, count, &before_rows));
    BLOCKSCALE_RETURN_IF_ERROR(after.Read(row, count, &after_rows));
    check.Take(row, before_rows, after_rows);
  }
  return check.Finish(failures);
}

}  // namespace blockscale
