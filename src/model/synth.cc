#include "model/synth.h"

#include <oneapi/tbb/parallel_for.h>

#include <atomic>
#include <cstring>
#include <mutex>

#include "checkpoint/hf_config.h"
#include "checkpoint/index.h"
#include "checkpoint/output_file.h"
#include "model/family_tensors.h"
#include "model/minimax_m2.h"
#include "model/synth_values.h"

namespace blockscale {
namespace {

constexpr uint64_t kChunk = uint64_t{1} << 20;
constexpr uint64_t kMaxSide = uint64_t{1} << 24;
constexpr uint64_t kMaxTensors = 2'000'000;
constexpr uint64_t kMaxShards = 10'000;
constexpr uint64_t kMaxDataBytes = uint64_t{1} << 50;

Status CheckSize(const SynthOptions& options) {
  const ModelSize& size = options.size;
  const std::pair<const char*, uint64_t> sides[] = {
      {"layers", size.layers},     {"experts", size.experts},
      {"hidden", size.hidden},     {"intermediate", size.intermediate},
      {"heads", size.heads},       {"kv-heads", size.kv_heads},
      {"head-dim", size.head_dim}, {"vocab", size.vocab}};
  for (const auto& [name, value] : sides)
    if (value == 0 || value > kMaxSide)
      return InvalidInput("--{} is {}, not from 1 to {}", name, value, kMaxSide);
  if (size.heads % size.kv_heads != 0)
    return InvalidInput("--heads {} is not a multiple of --kv-heads {}", size.heads, size.kv_heads);
  if (size.layers * (size.experts * 6 + 14) > kMaxTensors)
    return InvalidInput("{} layers of {} experts are more than the limit of {} tensors",
                        size.layers, size.experts, kMaxTensors);
  const uint64_t matrices = size.layers * (size.experts * 3 + 4);
  if (options.shards == 0 || options.shards > std::min(kMaxShards, matrices + 1))
    return InvalidInput("--shards is {}, not from 1 to {} (a shard holds at least one matrix)",
                        options.shards, std::min(kMaxShards, matrices + 1));
  return OkStatus();
}

// Widths that the family's groups do not divide have no spelling.
Status CheckWidths(const SynthOptions& options) {
  const uint64_t unit = WidthUnitOf(options.family);
  for (const auto& [name, value] :
       {std::pair("hidden", options.size.hidden), {"intermediate", options.size.intermediate}})
    if (value % unit != 0)
      return InvalidInput("--{} {} is not a multiple of {}, which {} needs", name, value, unit,
                          NameOf(options.family));
  return OkStatus();
}

Status CheckOutput(FileSystem& files, const std::string& output) {
  if (!files.Exists(output)) return OkStatus();
  BLOCKSCALE_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(output));
  if (names.empty()) return OkStatus();
  return Refused("{}: is not empty (it holds '{}'); choose a new folder", output, names.front());
}

// Codes of a quantised matrix.
bool IsCodes(const TensorInfo& tensor) {
  const std::string_view name = tensor.name;
  return tensor.dtype == DType::kF8E4M3 || name.ends_with(".weight_packed") ||
         name.ends_with("_blocks") || (tensor.dtype == DType::kI8 && name.ends_with(".weight"));
}

// Cuts the tensors into shards of about equal size. Every cut falls between a matrix and its scale,
// so that readers that look for the scale in the same file are found out.
std::vector<std::vector<TensorInfo>> CutIntoShards(const std::vector<TensorInfo>& tensors,
                                                   uint64_t shards) {
  uint64_t left = 0, matrices_left = 0;
  for (const TensorInfo& tensor : tensors) {
    left += TensorBytes(tensor.name, tensor.dtype, tensor.shape).value();
    matrices_left += IsCodes(tensor);
  }
  std::vector<std::vector<TensorInfo>> cut(1);
  uint64_t filled = 0;
  for (const TensorInfo& tensor : tensors) {
    cut.back().push_back(tensor);
    filled += TensorBytes(tensor.name, tensor.dtype, tensor.shape).value();
    const uint64_t shards_left = shards - (cut.size() - 1);
    if (!IsCodes(tensor) || shards_left == 1) continue;
    --matrices_left;
    const bool last_chance = matrices_left + 2 <= shards_left;
    if (filled < left / shards_left && !last_chance) continue;
    left -= filled;
    filled = 0;
    cut.emplace_back();
  }
  return cut;
}

// Sizes of all tensors together; one of them, or all, may be more than a file system can hold.
Result<SynthSummary> Summarize(const std::vector<TensorInfo>& tensors) {
  SynthSummary summary{.tensors = tensors.size()};
  for (const TensorInfo& tensor : tensors) {
    BLOCKSCALE_ASSIGN_OR_RETURN(const uint64_t bytes,
                                TensorBytes(tensor.name, tensor.dtype, tensor.shape));
    if (bytes > kMaxDataBytes - summary.data_bytes)
      return InvalidInput(
          "the tensors up to '{}' have more than the limit of {} bytes; choose "
          "fewer layers or experts, or smaller widths",
          tensor.name, kMaxDataBytes);
    summary.data_bytes += bytes;
    summary.fp8_matrices += tensor.dtype == DType::kF8E4M3;
    summary.matrices += IsCodes(tensor);
  }
  return summary;
}

// A shard before it is written: its name, the bytes before its data, and where its tensors go.
struct LaidOutShard {
  std::string name;
  std::string header_bytes;
  SafetensorsHeader header;
};

Result<std::vector<LaidOutShard>> LayOutShards(Family family,
                                               const std::vector<TensorInfo>& tensors,
                                               uint64_t shards) {
  std::vector<LaidOutShard> laid_out;
  for (std::vector<TensorInfo>& cut : CutIntoShards(tensors, shards)) {
    LaidOutShard& shard = laid_out.emplace_back();
    shard.name = SynthShardName(family, laid_out.size() - 1, shards);
    Result<std::string> bytes = LayOutSafetensors(std::move(cut), &shard.header);
    if (!bytes.ok())
      return InvalidInput("{}: {}; choose more --shards than {}", shard.name,
                          bytes.status().message(), shards);
    shard.header_bytes = std::move(*bytes);
  }
  return laid_out;
}

Status CheckFreeSpace(FileSystem& files, const std::string& output, uint64_t needed) {
  BLOCKSCALE_ASSIGN_OR_RETURN(const uint64_t free, FreeBytesAt(files, output));
  if (needed <= free) return OkStatus();
  return {StatusCode::kDiskFull,
          OneLine(fmt::format("{}: {} bytes are needed, {} are free; choose another disk, smaller "
                              "sizes or --sparse",
                              output, needed, free))};
}

class Writer {
 public:
  Writer(FileSystem& files, const SynthOptions& options, const FamilyTensors& family,
         uint64_t total)
      : files_(files), options_(options), family_(family), total_(total) {}

  Status WriteShard(const LaidOutShard& shard) {
    BLOCKSCALE_ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> file,
                                OutputFile::Create(files_, options_.output, shard.name));
    BLOCKSCALE_RETURN_IF_ERROR(file->WriteAt(0, std::as_bytes(std::span(shard.header_bytes))));
    BLOCKSCALE_RETURN_IF_ERROR(options_.sparse ? file->Truncate(shard.header.file_bytes())
                                               : WriteData(*file, shard.header));
    for (const TensorInfo& tensor : shard.header.tensors)
      weight_map_.emplace_back(tensor.name, shard.name);
    return file->Commit();
  }

  std::vector<std::pair<std::string, std::string>> TakeWeightMap() {
    return std::move(weight_map_);
  }

 private:
  struct Piece {
    const TensorInfo* tensor;
    uint64_t offset, count;
  };

  Status WriteData(OutputFile& file, const SafetensorsHeader& header) {
    std::vector<Piece> pieces;
    for (const TensorInfo& tensor : header.tensors)
      for (uint64_t offset = 0; offset < tensor.bytes(); offset += kChunk)
        pieces.push_back({&tensor, offset, std::min(kChunk, tensor.bytes() - offset)});
    Status first_error;
    std::mutex mutex;
    std::atomic<bool> failed = false;  // then nothing more is made
    oneapi::tbb::parallel_for(size_t{0}, pieces.size(), [&](size_t i) {
      if (failed) return;
      const Piece& piece = pieces[i];
      std::vector<std::byte> data(piece.count);
      if (const auto fixed = family_.fixed.find(piece.tensor->name); fixed != family_.fixed.end())
        std::memcpy(data.data(), fixed->second.data(), data.size());
      else
        FillSynthetic(options_.seed, *piece.tensor, piece.offset, data);
      const uint64_t at = header.data_start + piece.tensor->begin + piece.offset;
      const Status status = file.WriteAt(at, data);
      const std::lock_guard lock(mutex);
      if (!status.ok()) {
        if (first_error.ok()) first_error = status;
        failed = true;
        return;
      }
      done_ += piece.count;
      if (options_.progress) options_.progress(done_, total_);
    });
    return first_error;
  }

  FileSystem& files_;
  const SynthOptions& options_;
  const FamilyTensors& family_;
  uint64_t total_;
  uint64_t done_ = 0;
  std::vector<std::pair<std::string, std::string>> weight_map_;
};

}  // namespace

SynthOptions FullSize(SynthOptions options) {
  options.size = MiniMaxM27Size();
  options.shards = 125;
  options.lie_about_total_size = true;
  return options;
}

std::string SynthShardName(Family family, uint64_t shard, uint64_t shards) {
  if (family != Family::kMiniMaxM2)
    return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards);
  return fmt::format("model-{:05}-of-{:05}.safetensors", shard, shards + (shards + 24) / 25);
}

Result<SynthSummary> SynthesizeCheckpoint(FileSystem& files, const SynthOptions& options) {
  BLOCKSCALE_RETURN_IF_ERROR(CheckSize(options));
  BLOCKSCALE_RETURN_IF_ERROR(CheckWidths(options));
  BLOCKSCALE_RETURN_IF_ERROR(CheckOutput(files, options.output));
  const FamilyTensors family = TensorsOf(options.family, options.size);
  const std::vector<TensorInfo>& tensors = family.tensors;
  BLOCKSCALE_ASSIGN_OR_RETURN(SynthSummary summary, Summarize(tensors));
  BLOCKSCALE_ASSIGN_OR_RETURN(const std::vector<LaidOutShard> shards,
                              LayOutShards(options.family, tensors, options.shards));
  summary.shards = shards.size();
  if (!options.sparse)
    BLOCKSCALE_RETURN_IF_ERROR(CheckFreeSpace(files, options.output, summary.data_bytes));
  BLOCKSCALE_RETURN_IF_ERROR(files.CreateDirectories(options.output));
  Writer writer(files, options, family, summary.data_bytes);
  for (const LaidOutShard& shard : shards) BLOCKSCALE_RETURN_IF_ERROR(writer.WriteShard(shard));
  for (const auto& [name, text] : SideFilesOf(options.family))
    BLOCKSCALE_RETURN_IF_ERROR(WriteFileAtomically(files, options.output, name, text));
  uint64_t elements = 0;
  for (const TensorInfo& tensor : tensors) elements += tensor.elements();
  const uint64_t total_size = options.lie_about_total_size ? 2 * elements : summary.data_bytes;
  BLOCKSCALE_RETURN_IF_ERROR(WriteFileAtomically(
      files, options.output, kIndexFileName, SerializeIndex(total_size, writer.TakeWeightMap())));
  BLOCKSCALE_RETURN_IF_ERROR(
      WriteFileAtomically(files, options.output, kConfigFileName, family.config.dump(2) + "\n"));
  return summary;
}

}  // namespace blockscale
