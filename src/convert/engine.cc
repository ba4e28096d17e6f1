#include "convert/engine.h"

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_pipeline.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "checkpoint/output_file.h"
#include "convert/finisher.h"
#include "convert/recode.h"

namespace blockscale {
namespace {

constexpr uint64_t kChunkBytes = uint64_t{1} << 20;
constexpr uint64_t kChunkElements = uint64_t{1} << 18;   // of matrices that pass through FP32
constexpr uint64_t kMemoryBudget = uint64_t{224} << 20;  // of all chunks in flight
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
  const PlannedItem* item = nullptr;
  uint64_t first = 0;  // row of a matrix, or byte of a copy
  uint64_t count = 0;  // rows or bytes
  bool last_of_shard = false;
  std::shared_ptr<const MatrixScales> scales;
  std::vector<std::byte> in;  // of a copy or a bias
  RecodeBuffers work;
  uint64_t bytes = 0;  // written
  Status status;
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
    chunk->bytes = 0;
    chunk->status = OkStatus();
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(chunk));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Chunk>> free_;
};

// Walks the shards and items of a job and cuts them into chunks.
class ChunkSource {
 public:
  ChunkSource(FileSystem& files, const EngineJob& job, ChunkPool& pool)
      : files_(files), job_(job), pool_(pool), finder_(*job.source, *job.plan) {}

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
    const PlannedItem& item = shard_->plan->items[item_index_];
    if (item.matrix != nullptr && !scales_) {
      BLOCKSCALE_ASSIGN_OR_RETURN(MatrixScales scales, finder_.Find(*item.matrix));
      scales_ = std::make_shared<const MatrixScales>(std::move(scales));
    }
    const uint64_t total = item.matrix != nullptr ? item.matrix->rows
                           : item.bias != nullptr ? 1
                                                  : item.copy.info->bytes();
    chunk.shard = shard_;
    chunk.item = &item;
    chunk.first = position_;
    chunk.count = std::min(total - position_, StepOf(item));
    chunk.scales = scales_;
    position_ += chunk.count;
    if (position_ == total) NextItem();
    chunk.last_of_shard = !shard_;
    return OkStatus();
  }

  // Rows or bytes of a chunk. Chunks begin at a row of target blocks and hold each source's turn.
  uint64_t StepOf(const PlannedItem& item) const {
    if (item.matrix == nullptr) return kChunkBytes;
    const OutputMatrix& matrix = *item.matrix;
    const bool bytes_only = matrix.way == OutputMatrix::Way::kFp8ToInt8;
    const uint64_t elements = bytes_only ? kChunkBytes : kChunkElements;
    const uint64_t by_size = std::max<uint64_t>(1, elements / matrix.columns);
    const uint64_t rows = job_.chunk_rows == 0 ? by_size : std::min(job_.chunk_rows, by_size);
    const uint64_t unit = std::max<uint64_t>(matrix.sources.size(), matrix.encode.spec.block_rows);
    return (rows + unit - 1) / unit * unit;
  }

  Status OpenNext() {
    const PlannedShard* plan = job_.shards[shard_index_];
    shard_ = std::make_shared<OpenShard>();
    shard_->plan = plan;
    BLOCKSCALE_ASSIGN_OR_RETURN(shard_->file, OutputFile::Create(files_, job_.output, plan->name));
    return shard_->file->WriteAt(0, std::as_bytes(std::span(plan->header_bytes)));
  }

  void NextItem() {
    position_ = 0;
    scales_.reset();
    if (++item_index_ < shard_->plan->items.size()) return;
    item_index_ = 0;
    shard_.reset();
    ++shard_index_;
  }

  FileSystem& files_;
  const EngineJob& job_;
  ChunkPool& pool_;
  ScaleFinder finder_;
  size_t shard_index_ = 0;
  size_t item_index_ = 0;
  uint64_t position_ = 0;
  std::shared_ptr<OpenShard> shard_;
  std::shared_ptr<const MatrixScales> scales_;
};

// Writes and counts.
Status Write(Chunk& chunk, uint64_t offset, std::span<const std::byte> bytes) {
  chunk.bytes += bytes.size();
  OutputFile& file = *chunk.shard->file;
  BLOCKSCALE_RETURN_IF_ERROR(file.WriteAt(offset, bytes));
  if (bytes.size() >= kMinWriteback) file.StartWriteback(offset, bytes.size());
  return OkStatus();
}

Status Copy(const EngineJob& job, Chunk& chunk) {
  chunk.in.resize(chunk.count);
  BLOCKSCALE_RETURN_IF_ERROR(job.source->Read(chunk.item->copy, chunk.first, chunk.in));
  return Write(chunk, chunk.item->offset + chunk.first, chunk.in);
}

// Biases are small: one piece, however many parts it has.
Status GatherBias(const EngineJob& job, Chunk& chunk) {
  const OutputBias& bias = *chunk.item->bias;
  const uint64_t width = static_cast<uint64_t>(BitsOf(bias.parts.front().values.info->dtype)) / 8;
  uint64_t group = 0;  // where the current group of parts begins
  chunk.in.clear();
  for (size_t index = 0; index < bias.parts.size(); ++index) {
    const StoredBias& part = bias.parts[index];
    const uint64_t turn = index % bias.interleave;
    if (turn == 0) group = chunk.in.size();
    chunk.in.resize(std::max(chunk.in.size(), group + part.count * bias.interleave * width));
    std::vector<std::byte> values(((part.count - 1) * part.step + 1) * width);
    BLOCKSCALE_RETURN_IF_ERROR(job.source->Read(part.values, part.first * width, values));
    for (uint64_t i = 0; i < part.count; ++i)
      std::memcpy(chunk.in.data() + group + (i * bias.interleave + turn) * width,
                  values.data() + i * part.step * width, width);
  }
  return Write(chunk, bias.offset, chunk.in);
}

// What is written once for a matrix, with its first rows.
Status WriteOnce(Chunk& chunk) {
  const OutputMatrix& matrix = *chunk.item->matrix;
  if (matrix.global_offset != 0)
    BLOCKSCALE_RETURN_IF_ERROR(Write(chunk, matrix.global_offset,
                                     std::as_bytes(std::span(&chunk.scales->target.value, 1))));
  if (matrix.input_scale_offset != 0)
    BLOCKSCALE_RETURN_IF_ERROR(Write(chunk, matrix.input_scale_offset,
                                     std::as_bytes(std::span(&*chunk.scales->input_scale, 1))));
  if (matrix.shape_offset == 0) return OkStatus();
  const int64_t shape[2] = {static_cast<int64_t>(matrix.rows),
                            static_cast<int64_t>(matrix.columns)};
  return Write(chunk, matrix.shape_offset, std::as_bytes(std::span(shape)));
}

Status Convert(const EngineJob& job, Chunk& chunk) {
  const OutputMatrix& matrix = *chunk.item->matrix;
  const QuantSpec& spec = matrix.encode.spec;
  BLOCKSCALE_RETURN_IF_ERROR(
      RecodeRows(*job.source, matrix, *chunk.scales, chunk.first, chunk.count, &chunk.work));
  if (chunk.first == 0) BLOCKSCALE_RETURN_IF_ERROR(WriteOnce(chunk));
  BLOCKSCALE_RETURN_IF_ERROR(Write(
      chunk, matrix.codes_offset + chunk.first * spec.row_bytes(matrix.columns), chunk.work.codes));
  // One scale for the whole matrix comes again with every chunk.
  if (!spec.has_scales() || (spec.block_rows == 0 && chunk.first != 0)) return OkStatus();
  const uint64_t row_bytes = spec.grid_columns(matrix.columns) * spec.scale_bytes();
  return Write(chunk, matrix.scales_offset + spec.grid_row(chunk.first) * row_bytes,
               chunk.work.scales);
}

MatrixQuality QualityOf(const OutputMatrix& matrix, const RowsLoss& loss) {
  const double rmse =
      loss.sum_squares > 0 ? std::sqrt(loss.sum_squared_errors / loss.sum_squares) : 0;
  return {.name = matrix.name,
          .rows = matrix.rows,
          .columns = matrix.columns,
          .relative_rmse = rmse,
          .sqnr_db = SqnrDb(rmse),
          .max_half_steps = loss.largest_error,
          .zero_rows = loss.zero_rows,
          .clipped = loss.clipped,
          .from = std::string(NameOf(matrix.sources.front()->spec.scheme)),
          .to = std::string(NameOf(matrix.encode.spec.scheme)),
          .inexact_blocks = loss.inexact_blocks};
}

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
    if (const OutputMatrix* matrix = chunk.item->matrix) {
      for (const RowsLoss& loss : chunk.work.losses) loss_.Add(loss);
      if (chunk.first + chunk.count == matrix->rows)
        finished_.push_back(QualityOf(*matrix, std::exchange(loss_, {})));
    }
    if (job_.wrote) job_.wrote(chunk.bytes);
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
  RowsLoss loss_;                        // of the current matrix
  std::vector<MatrixQuality> finished_;  // of the current shard
  std::atomic<bool> failed_ = false;
  Status status_;
};

// Bytes of buffers that a chunk of a matrix needs, at most.
uint64_t ChunkBytes(const OutputMatrix& matrix) {
  const uint64_t rows = std::max(
      {uint64_t{1}, matrix.encode.spec.block_rows, static_cast<uint64_t>(matrix.sources.size())});
  const uint64_t elements = std::max(kChunkElements, rows * matrix.columns);
  // Source, codes and scales; FP32 before and after, of what passes through it.
  return matrix.way == OutputMatrix::Way::kFp8ToInt8 ? 3 * std::max(kChunkBytes, matrix.columns)
                                                     : 12 * elements;
}

// Enough to keep all threads busy, and fewer where rows are so wide that memory would not hold.
size_t InFlight(const EngineJob& job) {
  uint64_t largest = 3 * kChunkBytes;
  for (const auto& matrix : job.plan->matrices) largest = std::max(largest, ChunkBytes(*matrix));
  return static_cast<size_t>(
      std::clamp<uint64_t>(kMemoryBudget / largest, 1, 2 * uint64_t{job.threads}));
}

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
      chunk->status = chunk->item->matrix != nullptr ? Convert(job, *chunk)
                      : chunk->item->bias != nullptr ? GatherBias(job, *chunk)
                                                     : Copy(job, *chunk);
    return chunk;
  };
  const auto collect = [&](Chunk* chunk) {
    if (!finisher.halted()) collector.Take(*chunk);
    pool.Give(std::unique_ptr<Chunk>(chunk));
  };
  const size_t in_flight = InFlight(job);
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
