#include "convert/engine.h"

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_pipeline.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "checkpoint/output_file.h"
#include "convert/finisher.h"

namespace blockscale {
namespace {

constexpr uint64_t kChunkBytes = uint64_t{1} << 20;
constexpr uint64_t kMinWriteback = uint64_t{128} << 10;  // smaller ranges wait for the fsync

// A shard that is being written.
struct OpenShard {
  const PlannedShard* plan = nullptr;
  std::unique_ptr<OutputFile> file;
};

// One piece of work, with the buffers it needs. Recycled, so that a run allocates only at its
// start.
struct Chunk {
  std::shared_ptr<OpenShard> shard;
  const PlannedTensor* tensor = nullptr;
  uint64_t tensor_index = 0;  // in shard->plan->tensors
  uint64_t first = 0;         // row of a matrix, or byte of a copy
  uint64_t count = 0;         // rows or bytes
  bool last_of_shard = false;
  std::shared_ptr<const std::vector<float>> scales;
  std::vector<std::byte> in;
  std::vector<int8_t> codes;
  std::vector<float> row_scales;
  std::vector<RowQuality> quality;
  Status status;

  uint64_t bytes() const {
    return tensor->matrix == nullptr ? count : count * (tensor->matrix->columns + sizeof(float));
  }
};

class ChunkPool {
 public:
  std::unique_ptr<Chunk> Take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Chunk>();
    std::unique_ptr<Chunk> chunk = std::move(free_.back());
    free_.pop_back();
    return chunk;
  }
  void Give(std::unique_ptr<Chunk> chunk) {
    chunk->shard.reset();
    chunk->scales.reset();
    chunk->status = OkStatus();
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(chunk));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Chunk>> free_;
};

// Walks the shards and tensors of a job and cuts them into chunks.
class ChunkSource {
 public:
  ChunkSource(FileSystem& files, const EngineJob& job, ChunkPool& pool)
      : files_(files), job_(job), pool_(pool) {}

  // Null at the end. An error (of opening a file, of reading scales) is in the chunk's status.
  std::unique_ptr<Chunk> Next() {
    if (shard_index_ == job_.shards.size()) return nullptr;
    std::unique_ptr<Chunk> chunk = pool_.Take();
    chunk->status = Fill(*chunk);
    return chunk;
  }

 private:
  Status Fill(Chunk& chunk) {
    if (!shard_) BLOCKSCALE_RETURN_IF_ERROR(OpenNext());
    const PlannedTensor& tensor = shard_->plan->tensors[tensor_index_];
    if (tensor.matrix != nullptr && !scales_) {
      BLOCKSCALE_ASSIGN_OR_RETURN(std::vector<float> scales,
                                  ReadScales(*job_.source, *tensor.matrix));
      scales_ = std::make_shared<const std::vector<float>>(std::move(scales));
    }
    const uint64_t total =
        tensor.matrix == nullptr ? tensor.source.info->bytes() : tensor.matrix->rows;
    chunk.shard = shard_;
    chunk.tensor = &tensor;
    chunk.tensor_index = tensor_index_;
    chunk.first = position_;
    chunk.count = std::min(total - position_, StepOf(tensor));
    chunk.scales = scales_;
    position_ += chunk.count;
    if (position_ == total) NextTensor();
    chunk.last_of_shard = !shard_;
    return OkStatus();
  }

  uint64_t StepOf(const PlannedTensor& tensor) const {
    if (tensor.matrix == nullptr) return kChunkBytes;
    const uint64_t by_size = std::max<uint64_t>(1, kChunkBytes / tensor.matrix->columns);
    return job_.chunk_rows == 0 ? by_size : std::min(job_.chunk_rows, by_size);
  }

  Status OpenNext() {
    const PlannedShard* plan = job_.shards[shard_index_];
    shard_ = std::make_shared<OpenShard>();
    shard_->plan = plan;
    BLOCKSCALE_ASSIGN_OR_RETURN(shard_->file, OutputFile::Create(files_, job_.output, plan->name));
    return shard_->file->WriteAt(0, std::as_bytes(std::span(plan->header_bytes)));
  }

  void NextTensor() {
    position_ = 0;
    scales_.reset();
    if (++tensor_index_ < shard_->plan->tensors.size()) return;
    tensor_index_ = 0;
    shard_.reset();
    ++shard_index_;
  }

  FileSystem& files_;
  const EngineJob& job_;
  ChunkPool& pool_;
  size_t shard_index_ = 0;
  size_t tensor_index_ = 0;
  uint64_t position_ = 0;
  std::shared_ptr<OpenShard> shard_;
  std::shared_ptr<const std::vector<float>> scales_;
};

Status Copy(const EngineJob& job, Chunk& chunk) {
  chunk.in.resize(chunk.count);
  BLOCKSCALE_RETURN_IF_ERROR(job.source->Read(chunk.tensor->source, chunk.first, chunk.in));
  return chunk.shard->file->WriteAt(chunk.tensor->offset + chunk.first, chunk.in);
}

// "how many more NaN codes are there": only on the way to an error, so that one pass suffices.
Result<uint64_t> CountNanCodes(const Checkpoint& source, const Fp8Matrix& matrix) {
  std::vector<std::byte> buffer(kChunkBytes);
  const uint64_t total = matrix.weight.info->bytes();
  uint64_t count = 0;
  for (uint64_t offset = 0; offset < total; offset += kChunkBytes) {
    const std::span<std::byte> piece(buffer.data(), std::min(kChunkBytes, total - offset));
    BLOCKSCALE_RETURN_IF_ERROR(source.Read(matrix.weight, offset, piece));
    for (const std::byte code : piece) count += (code & std::byte{0x7F}) == std::byte{0x7F};
  }
  return count;
}

Status FaultError(const EngineJob& job, const Chunk& chunk, const RowFault& fault) {
  const Fp8Matrix& matrix = *chunk.tensor->matrix;
  const uint64_t row = chunk.first + fault.row;
  const std::string where =
      fmt::format("{}: tensor '{}' [{}, {}]", matrix.weight.shard->file->path(),
                  matrix.weight.info->name, row, fault.column);
  const unsigned code =
      std::to_integer<unsigned>(chunk.in[fault.row * matrix.columns + fault.column]);
  switch (fault.kind) {
    case RowFault::Kind::kNanCode: {
      BLOCKSCALE_ASSIGN_OR_RETURN(const uint64_t count, CountNanCodes(*job.source, matrix));
      return InvalidInput(
          "{} is the NaN code 0x{:02X}, the first of {} in this tensor; weights must "
          "be numbers: get the checkpoint again from its source",
          where, code, count);
    }
    case RowFault::Kind::kZeroScale:
      return InvalidInput(
          "{} is code 0x{:02X}, but the scale of its block in '{}' is 0; a zero scale "
          "may stand only over zero codes: the checkpoint is damaged",
          where, code, matrix.scale.info->name);
    case RowFault::Kind::kOverflow:
      return InvalidInput(
          "{} is code 0x{:02X}, and times the scale of its block in '{}' it is larger "
          "than FP32 can hold (3.4e38): the scale is wrong",
          where, code, matrix.scale.info->name);
    case RowFault::Kind::kScaleUnderflow:
      return InvalidInput(
          "{}: the largest value of this row is so small that its INT8 scale would be "
          "below 1.2e-38, where FP32 loses precision: the scales in '{}' are wrong",
          where, matrix.scale.info->name);
    case RowFault::Kind::kNone:
      break;
  }
  return OkStatus();
}

Status Convert(const EngineJob& job, Chunk& chunk) {
  const Fp8Matrix& matrix = *chunk.tensor->matrix;
  const uint64_t codes = chunk.count * matrix.columns;
  chunk.in.resize(codes);
  chunk.codes.resize(codes);
  chunk.row_scales.resize(chunk.count);
  chunk.quality.resize(chunk.count);
  BLOCKSCALE_RETURN_IF_ERROR(
      job.source->Read(matrix.weight, chunk.first * matrix.columns, chunk.in));
  const RowFault fault = ConvertFp8RowsToInt8(
      {.codes = reinterpret_cast<const uint8_t*>(chunk.in.data()),
       .rows = chunk.count,
       .columns = matrix.columns,
       .first_row = chunk.first,
       .scales = chunk.scales->data(),
       .grid_columns = matrix.grid_columns,
       .block_rows = matrix.block.rows,
       .block_columns = matrix.block.columns},
      job.range, {.codes = chunk.codes.data(), .row_scales = chunk.row_scales.data()},
      chunk.quality.data());
  if (fault.kind != RowFault::Kind::kNone) return FaultError(job, chunk, fault);
  OutputFile& file = *chunk.shard->file;
  const uint64_t offset = chunk.tensor->offset + chunk.first * matrix.columns;
  BLOCKSCALE_RETURN_IF_ERROR(file.WriteAt(offset, std::as_bytes(std::span(chunk.codes))));
  if (codes >= kMinWriteback) file.StartWriteback(offset, codes);
  return file.WriteAt(chunk.tensor->scale_offset + chunk.first * sizeof(float),
                      std::as_bytes(std::span(chunk.row_scales)));
}

// Adds rows up, in order, into what one matrix lost.
class QualitySum {
 public:
  void Add(const Chunk& chunk) {
    for (uint64_t row = 0; row < chunk.count; ++row) {
      const RowQuality& quality = chunk.quality[row];
      const double scale = chunk.row_scales[row];
      squares_ += scale * scale * quality.sum_squares;
      errors_ += scale * scale * quality.sum_squared_errors;
      max_error_ = std::max(max_error_, quality.max_error);
      zero_rows_ += quality.zero;
    }
  }
  MatrixQuality Finish(const Fp8Matrix& matrix) const {
    const double rmse = squares_ > 0 ? std::sqrt(errors_ / squares_) : 0;
    return {.name = matrix.weight.info->name,
            .rows = matrix.rows,
            .columns = matrix.columns,
            .relative_rmse = rmse,
            .sqnr_db = SqnrDb(rmse),
            .max_half_steps = 2.0 * max_error_,
            .zero_rows = zero_rows_};
  }

 private:
  double squares_ = 0, errors_ = 0;
  float max_error_ = 0;
  uint64_t zero_rows_ = 0;
};

// The last stage: sees every chunk in order.
class Collector {
 public:
  Collector(const EngineJob& job, Finisher& finisher) : job_(job), finisher_(finisher) {}

  bool failed() const { return failed_; }
  const Status& status() const { return status_; }

  void Take(Chunk& chunk) {
    if (failed_) return;
    if (!chunk.status.ok()) {  // the first in order, so that the message never depends on threads
      status_ = chunk.status;
      failed_ = true;
      return;
    }
    if (const Fp8Matrix* matrix = chunk.tensor->matrix) {
      sum_.Add(chunk);
      if (chunk.first + chunk.count == matrix->rows)
        finished_.push_back(std::exchange(sum_, {}).Finish(*matrix));
    }
    if (job_.wrote) job_.wrote(chunk.bytes());
    if (!chunk.last_of_shard) return;
    const PlannedShard& plan = *chunk.shard->plan;
    finisher_.Add({.file = std::move(chunk.shard->file),
                   .shard = {.name = plan.name,
                             .bytes = plan.header.file_bytes(),
                             .matrices = std::exchange(finished_, {})}});
  }

 private:
  const EngineJob& job_;
  Finisher& finisher_;
  QualitySum sum_;
  std::vector<MatrixQuality> finished_;  // of the current shard
  std::atomic<bool> failed_ = false;
  Status status_;
};

void Stream(FileSystem& files, const EngineJob& job, Finisher& finisher, Collector& collector) {
  namespace tbb = oneapi::tbb;
  ChunkPool pool;
  ChunkSource source(files, job, pool);
  bool source_failed = false;
  const auto next = [&](tbb::flow_control& control) -> Chunk* {
    std::unique_ptr<Chunk> chunk;
    if (!source_failed && !collector.failed() && !finisher.halted()) chunk = source.Next();
    if (!chunk) {
      control.stop();
      return nullptr;
    }
    source_failed = !chunk->status.ok();
    return chunk.release();
  };
  const auto work = [&](Chunk* chunk) {
    if (chunk->status.ok() && !finisher.halted())
      chunk->status = chunk->tensor->matrix == nullptr ? Copy(job, *chunk) : Convert(job, *chunk);
    return chunk;
  };
  const auto collect = [&](Chunk* chunk) {
    if (!finisher.halted()) collector.Take(*chunk);
    pool.Give(std::unique_ptr<Chunk>(chunk));
  };
  const size_t in_flight = 2 * size_t{job.threads};
  const tbb::global_control workers(tbb::global_control::max_allowed_parallelism, job.threads);
  tbb::task_arena arena(static_cast<int>(job.threads));
  arena.execute([&] {
    tbb::parallel_pipeline(
        in_flight, tbb::make_filter<void, Chunk*>(tbb::filter_mode::serial_in_order, next) &
                       tbb::make_filter<Chunk*, Chunk*>(tbb::filter_mode::parallel, work) &
                       tbb::make_filter<Chunk*, void>(tbb::filter_mode::serial_in_order, collect));
  });
}

}  // namespace

Status RunEngine(FileSystem& files, const EngineJob& job, Journal& journal,
                 const std::function<void(const std::string&)>& finished) {
  Finisher finisher(journal, job.stop, finished);
  Collector collector(job, finisher);
  Stream(files, job, finisher, collector);
  const Status finish = finisher.Join();
  if (!collector.status().ok()) return collector.status();
  BLOCKSCALE_RETURN_IF_ERROR(finish);
  if (job.stop != nullptr && job.stop->load())
    return {StatusCode::kCancelled, "stopped; what is finished is kept, run again with --resume"};
  return OkStatus();
}

}  // namespace blockscale
