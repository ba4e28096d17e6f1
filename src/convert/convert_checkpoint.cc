#include "convert/convert_checkpoint.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "checkpoint/output_file.h"
#include "checkpoint/side_files.h"
#include "convert/compare.h"
#include "convert/engine.h"
#include "convert/output_folder.h"
#include "convert/quantization_config.h"
#include "convert/report.h"

namespace blockscale {
namespace {

constexpr size_t kComparedMatrices = 32;
constexpr size_t kComparedForReport = 8;  // enough to place a choice among the others
constexpr uint64_t kCopyChunk = uint64_t{1} << 20;
// State, report and page: about 400 bytes a matrix, and something for the rest.
constexpr uint64_t kReserveBytes = uint64_t{16} << 20;
constexpr uint64_t kReservePerMatrix = 1024;

std::string RangeName(Int8Range range) { return range == Int8Range::k127 ? "127" : "128"; }

Status CheckOptions(const ConvertOptions& options) {
  if (options.threads > 256)
    return InvalidInput("--threads {} is more than the limit of 256", options.threads);
  return OkStatus();
}

// What can be checked before the plan is made and before anything is written.
Result<Checkpoint> OpenSource(FileSystem& files, const ConvertOptions& options) {
  BLOCKSCALE_RETURN_IF_ERROR(CheckOptions(options));
  BLOCKSCALE_ASSIGN_OR_RETURN(Checkpoint source, Checkpoint::Open(files, options.source));
  BLOCKSCALE_RETURN_IF_ERROR(CheckFolders(files, options.source, options.output));
  BLOCKSCALE_RETURN_IF_ERROR(CheckOutputFolder(files, options.output, options.resume));
  // They are copied last, when hours of work would be at stake.
  BLOCKSCALE_ASSIGN_OR_RETURN(const std::vector<std::string> side_files,
                              ListSideFiles(files, options.source));
  for (const std::string& name : side_files)
    BLOCKSCALE_RETURN_IF_ERROR(files.OpenForRead(JoinPath(options.source, name)).status());
  return source;
}

// Folders of the source that nobody copies: a package of code there would be missed at load time.
Result<std::vector<std::string>> FoldersLeftOut(FileSystem& files, const std::string& source) {
  std::vector<std::string> left_out;
  BLOCKSCALE_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(source));
  BLOCKSCALE_ASSIGN_OR_RETURN(const std::vector<std::string> copied, ListSideFiles(files, source));
  for (const std::string& name : names) {
    if (name.starts_with(".")) continue;
    const Result<FileFacts> facts = files.Stat(JoinPath(source, name));
    const bool some = std::any_of(copied.begin(), copied.end(), [&](const std::string& file) {
      return file.starts_with(name + "/");
    });
    if (facts.ok() && facts->is_directory && !some) left_out.push_back(name);
  }
  return left_out;
}

uint64_t NeededBytes(const ConvertPlanSummary& summary) {
  return summary.file_bytes + kReserveBytes + kReservePerMatrix * summary.matrices;
}

Status NoRoom(const ConvertOptions& options, uint64_t needed, uint64_t free) {
  return {StatusCode::kDiskFull,
          fmt::format("{}: {} bytes are needed (shards and reports) and {} are free; make room or "
                      "choose another disk (nothing was written)",
                      options.output, needed, free)};
}

Result<ConvertPlanSummary> Summarise(FileSystem& files, const ConvertOptions& options,
                                     const ConversionPlan& plan) {
  ConvertPlanSummary summary{.matrices = plan.matrices.size(),
                             .kept_tensors = plan.kept_tensors,
                             .source_shards = plan.source_shards,
                             .output_shards = plan.shards.size(),
                             .source_bytes = plan.source_bytes,
                             .output_bytes = plan.output_bytes,
                             .file_bytes = plan.file_bytes,
                             .dialect = std::string(NameOf(plan.dialect)),
                             .warnings = plan.warnings};
  BLOCKSCALE_ASSIGN_OR_RETURN(const std::vector<std::string> left_out,
                              FoldersLeftOut(files, options.source));
  for (const std::string& name : left_out)
    summary.warnings.push_back(fmt::format(
        "folder '{}' of the source is not copied; if the model's code needs it, copy it yourself",
        name));
  BLOCKSCALE_ASSIGN_OR_RETURN(summary.free_bytes, FreeBytesAt(files, options.output));
  summary.fits = NeededBytes(summary) <= summary.free_bytes;
  return summary;
}

// One conversion from opened source to report.
class Conversion {
 public:
  Conversion(FileSystem& files, const ConvertOptions& options, const Checkpoint& source,
             const ConversionPlan& plan, ConvertPlanSummary summary)
      : files_(files), options_(options), source_(source), plan_(plan), summary_(summary) {
    progress_.bytes_total = plan.output_bytes;
    progress_.shards_total = plan.shards.size();
  }

  Result<ConvertSummary> Run() {
    const auto start = std::chrono::steady_clock::now();
    BLOCKSCALE_ASSIGN_OR_RETURN(const OutputFolder folder,
                                TakeOutputFolder(files_, options_.output, options_.resume));
    BLOCKSCALE_ASSIGN_OR_RETURN(ConversionState state, StartState(folder));
    BLOCKSCALE_RETURN_IF_ERROR(RemoveStale(folder.partials));
    BLOCKSCALE_RETURN_IF_ERROR(KeepWholeShards(state));
    BLOCKSCALE_RETURN_IF_ERROR(CheckSpace());
    reused_ = state.shards.size();
    const uint64_t bytes_before = progress_.bytes_done;
    Journal journal(files_, options_.output, std::move(state));
    BLOCKSCALE_RETURN_IF_ERROR(journal.Save());
    if (const Status status = Stream(journal); !status.ok()) return AfterFailure(status, journal);
    BLOCKSCALE_RETURN_IF_ERROR(CheckSourceUnchanged(journal.state().source));

    ConvertSummary result{.plan = summary_, .shards_reused = reused_};
    result.matrices = MatricesInPlanOrder(journal.state());
    result.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    BLOCKSCALE_RETURN_IF_ERROR(
        WriteRest(journal.state().source.path, result, progress_.bytes_done - bytes_before));
    return result;
  }

 private:
  // The journal to begin with: a new one, or the earlier run's if it belongs to this conversion.
  Result<ConversionState> StartState(const OutputFolder& folder) {
    BLOCKSCALE_ASSIGN_OR_RETURN(SourceFingerprint now, FingerprintOf(source_));
    if (!folder.state)
      return ConversionState{.int8_range = RangeName(options_.range),
                             .recipe = RecipeJson(options_.recipe),
                             .source = std::move(now)};
    ConversionState state = *folder.state;
    const std::string where = JoinPath(options_.output, kStateFileName);
    if (state.int8_range != RangeName(options_.range))
      return Refused(
          "{}: the run to be continued used --int8-range {}, this one {}; use the same or "
          "start a new output folder",
          where, state.int8_range, RangeName(options_.range));
    if (state.recipe != RecipeJson(options_.recipe))
      return Refused(
          "{}: the run to be continued had the recipe {}, this one {}; use the same or start a new "
          "output folder",
          where, state.recipe, RecipeJson(options_.recipe));
    if (const std::string difference = FirstDifference(state.source, now); !difference.empty())
      return Refused("{}: cannot continue, because {}; start a new output folder", where,
                     difference);
    return state;
  }

  // Partial files of names that this conversion writes; others are not ours.
  Status RemoveStale(const std::vector<std::string>& partials) {
    std::unordered_set<std::string> ours = {kConfigFileName,     kIndexFileName,  kStateFileName,
                                            kModelOptConfigName, kReportJsonName, kReportHtmlName};
    for (const PlannedShard& shard : plan_.shards) ours.insert(shard.name);
    BLOCKSCALE_ASSIGN_OR_RETURN(const std::vector<std::string> side_files,
                                ListSideFiles(files_, source_.folder()));
    ours.insert(side_files.begin(), side_files.end());
    for (const std::string& partial : partials)
      if (ours.contains(partial.substr(0, partial.size() - kPartialSuffix.size())))
        BLOCKSCALE_RETURN_IF_ERROR(files_.Remove(JoinPath(options_.output, partial)));
    return OkStatus();
  }

  // Keeps in `state` only the shards whose files are whole; notes which are left to do.
  Status KeepWholeShards(ConversionState& state) {
    std::unordered_map<std::string, FinishedShard> earlier;
    for (FinishedShard& shard : state.shards) earlier.emplace(shard.name, std::move(shard));
    state.shards.clear();
    for (const PlannedShard& planned : plan_.shards) {
      const auto found = earlier.find(planned.name);
      if (found == earlier.end()) {
        todo_.push_back(&planned);
        continue;
      }
      BLOCKSCALE_ASSIGN_OR_RETURN(const bool whole, IsWhole(planned, found->second));
      if (!whole) {
        todo_.push_back(&planned);
        continue;
      }
      state.shards.push_back(std::move(found->second));
      progress_.bytes_done += planned.header.data_bytes();
      ++progress_.shards_done;
      Report("");
    }
    return OkStatus();
  }

  Result<bool> IsWhole(const PlannedShard& planned, const FinishedShard& finished) {
    const std::string path = JoinPath(options_.output, planned.name);
    if (!files_.Exists(path) || finished.bytes != planned.header.file_bytes()) return false;
    BLOCKSCALE_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, files_.OpenForRead(path));
    if (file->facts().size != finished.bytes) return false;
    if (options_.resume_check == ResumeCheck::kHeader) {
      std::string header(planned.header_bytes.size(), '\0');
      BLOCKSCALE_RETURN_IF_ERROR(file->ReadAt(0, std::as_writable_bytes(std::span(header))));
      return header == planned.header_bytes;
    }
    BLOCKSCALE_ASSIGN_OR_RETURN(const std::string digest,
                                Xxh3OfFile(*file, [&] { return Stopped(); }));
    return digest == finished.digest;
  }

  // A source that must be mended first has no run to continue: nothing is left of it. What a full
  // disk stopped can be continued.
  Status AfterFailure(const Status& status, const Journal& journal) {
    if (status.code() == StatusCode::kInvalidInput && journal.state().shards.empty())
      BLOCKSCALE_RETURN_IF_ERROR(files_.Remove(JoinPath(options_.output, kStateFileName)));
    if (status.code() != StatusCode::kDiskFull) return status;
    return {status.code(),
            status.message() + "; what is finished is kept: make room and run again with --resume"};
  }

  bool Stopped() const { return options_.stop != nullptr && options_.stop->load(); }

  Status CheckSpace() {
    uint64_t needed = kReserveBytes + kReservePerMatrix * summary_.matrices;
    for (const PlannedShard* shard : todo_) needed += shard->header.file_bytes();
    BLOCKSCALE_ASSIGN_OR_RETURN(const uint64_t free, FreeBytesAt(files_, options_.output));
    return needed <= free ? OkStatus() : NoRoom(options_, needed, free);
  }

  Status Stream(Journal& journal) {
    EngineJob job{.source = &source_,
                  .plan = &plan_,
                  .shards = todo_,
                  .output = options_.output,
                  .threads = options_.threads != 0
                                 ? options_.threads
                                 : std::max(1u, std::thread::hardware_concurrency()),
                  .chunk_rows = options_.chunk_rows,
                  .stop = options_.stop};
    job.wrote = [this](uint64_t bytes) {
      const std::lock_guard lock(mutex_);
      progress_.bytes_done += bytes;
      Report("");
    };
    return RunEngine(files_, job, journal, [this](const std::string& shard) {
      const std::lock_guard lock(mutex_);
      ++progress_.shards_done;
      Report(shard);
    });
  }

  void Report(const std::string& finished_shard) {
    if (!options_.progress) return;
    progress_.finished_shard = finished_shard;
    options_.progress(progress_);
  }

  // A source that was written to while it was read would give a mixture.
  Status CheckSourceUnchanged(const SourceFingerprint& fingerprint) {
    for (const SourceFingerprint::File& file : fingerprint.files) {
      const std::string path = JoinPath(source_.folder(), file.name);
      BLOCKSCALE_ASSIGN_OR_RETURN(const FileFacts facts, files_.Stat(path));
      if (facts.size != file.size || facts.modified_ns != file.modified_ns)
        return InvalidInput(
            "{}: was changed while it was converted; the output is a mixture, start "
            "again with a new output folder",
            path);
    }
    return OkStatus();
  }

  std::vector<MatrixQuality> MatricesInPlanOrder(const ConversionState& state) const {
    std::unordered_map<std::string, const FinishedShard*> by_name;
    for (const FinishedShard& shard : state.shards) by_name.emplace(shard.name, &shard);
    std::vector<MatrixQuality> matrices;
    for (const PlannedShard& planned : plan_.shards) {
      const std::vector<MatrixQuality>& of_shard = by_name.at(planned.name)->matrices;
      matrices.insert(matrices.end(), of_shard.begin(), of_shard.end());
    }
    return matrices;
  }

  // Everything that makes the shards a checkpoint; the config comes after what it speaks of.
  Status WriteRest(const std::string& source_path, const ConvertSummary& result, uint64_t written) {
    const std::string& output = options_.output;
    BLOCKSCALE_ASSIGN_OR_RETURN(const std::vector<std::string> side_files,
                                ListSideFiles(files_, source_.folder()));
    for (const std::string& name : side_files)
      if (name != kModelOptConfigName) BLOCKSCALE_RETURN_IF_ERROR(CopyFile(name));
    if (const std::string text = ModelOptConfig(plan_); !text.empty())
      BLOCKSCALE_RETURN_IF_ERROR(WriteFileAtomically(files_, output, kModelOptConfigName, text));
    std::vector<std::pair<std::string, std::string>> weight_map;
    for (const PlannedShard& shard : plan_.shards)
      for (const TensorInfo& tensor : shard.header.tensors)
        weight_map.emplace_back(tensor.name, shard.name);
    BLOCKSCALE_RETURN_IF_ERROR(WriteFileAtomically(
        files_, output, kIndexFileName, SerializeIndex(plan_.output_bytes, std::move(weight_map))));
    BLOCKSCALE_RETURN_IF_ERROR(WriteFileAtomically(files_, output, kConfigFileName,
                                                   RewriteConfig(source_.config(), plan_)));
    BLOCKSCALE_ASSIGN_OR_RETURN(std::vector<SchemeCost> comparison,
                                CompareOnSample(source_, plan_, kComparedForReport));
    const ReportFacts facts{.source = source_path,
                            .output = output,
                            .int8_range = RangeName(options_.range),
                            .recipe = options_.recipe,
                            .dialect = std::string(NameOf(plan_.dialect)),
                            .warnings = plan_.warnings,
                            .comparison = std::move(comparison),
                            .seconds = result.seconds,
                            .written_bytes = written};
    // A run that had nothing left to do keeps the page with the throughput of the one that did.
    if (!todo_.empty() || !files_.Exists(JoinPath(output, kReportHtmlName)))
      BLOCKSCALE_RETURN_IF_ERROR(WriteFileAtomically(files_, output, kReportHtmlName,
                                                     ReportHtml(facts, summary_, result.matrices)));
    return WriteFileAtomically(files_, output, kReportJsonName,
                               ReportJson(facts, summary_, result.matrices));
  }

  Status CopyFile(const std::string& name) {
    BLOCKSCALE_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> from,
                                files_.OpenForRead(JoinPath(source_.folder(), name)));
    BLOCKSCALE_ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> to,
                                OutputFile::Create(files_, options_.output, name));
    const uint64_t size = from->facts().size;
    std::vector<std::byte> buffer(std::min(size, kCopyChunk));
    for (uint64_t offset = 0; offset < size; offset += kCopyChunk) {
      const std::span<std::byte> piece(buffer.data(), std::min(kCopyChunk, size - offset));
      BLOCKSCALE_RETURN_IF_ERROR(from->ReadAt(offset, piece));
      BLOCKSCALE_RETURN_IF_ERROR(to->WriteAt(offset, piece));
    }
    return to->Commit();
  }

  FileSystem& files_;
  const ConvertOptions& options_;
  const Checkpoint& source_;
  const ConversionPlan& plan_;
  ConvertPlanSummary summary_;
  std::vector<const PlannedShard*> todo_;
  uint64_t reused_ = 0;
  std::mutex mutex_;
  ConvertProgress progress_;
};

}  // namespace

Result<ConvertPlanSummary> PlanConversionOn(FileSystem& files, const ConvertOptions& options) {
  BLOCKSCALE_ASSIGN_OR_RETURN(const Checkpoint source, OpenSource(files, options));
  BLOCKSCALE_ASSIGN_OR_RETURN(const ConversionPlan plan,
                              MakeConversionPlan(source, options.recipe, options.range));
  return Summarise(files, options, plan);
}

Result<ConvertSummary> ConvertCheckpointOn(FileSystem& files, const ConvertOptions& options) {
  BLOCKSCALE_ASSIGN_OR_RETURN(const Checkpoint source, OpenSource(files, options));
  BLOCKSCALE_ASSIGN_OR_RETURN(const ConversionPlan plan,
                              MakeConversionPlan(source, options.recipe, options.range));
  BLOCKSCALE_ASSIGN_OR_RETURN(const ConvertPlanSummary summary, Summarise(files, options, plan));
  // A continued run needs less: it is asked again when it is known what is left.
  if (!summary.fits && !options.resume)
    return NoRoom(options, NeededBytes(summary), summary.free_bytes);
  return Conversion(files, options, source, plan, summary).Run();
}

Result<std::vector<SchemeCost>> CompareSchemes(const ConvertOptions& options) {
  FileSystem& files = PosixFileSystem();
  BLOCKSCALE_ASSIGN_OR_RETURN(const Checkpoint source, OpenSource(files, options));
  BLOCKSCALE_ASSIGN_OR_RETURN(const ConversionPlan plan,
                              MakeConversionPlan(source, options.recipe, options.range));
  return CompareOnSample(source, plan, kComparedMatrices);
}

Result<ConvertPlanSummary> PlanConversion(const ConvertOptions& options) {
  return PlanConversionOn(PosixFileSystem(), options);
}

Result<ConvertSummary> ConvertCheckpoint(const ConvertOptions& options) {
  return ConvertCheckpointOn(PosixFileSystem(), options);
}

}  // namespace blockscale
