#include "checkpoint/output_file.h"

#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <vector>

namespace blockscale {
namespace {

constexpr uint64_t kDigestChunk = uint64_t{1} << 20;
constexpr uint64_t kFlushPiece = uint64_t{32} << 20;  // a third of a second on a disk of 100 MB/s

Status Cancelled() { return {StatusCode::kCancelled, "stopped"}; }

std::string Hex(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

// Hashes [0, size) through `read`, which fills a span from an offset.
template <typename Read>
Result<std::string> DigestRange(uint64_t size, const std::function<bool()>& stop, Read read) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  XXH3_128bits_reset(state.get());
  std::vector<std::byte> buffer(std::min(size, kDigestChunk));
  for (uint64_t offset = 0; offset < size; offset += buffer.size()) {
    if (stop && stop()) return Cancelled();
    const std::span<std::byte> chunk(buffer.data(),
                                     std::min<uint64_t>(buffer.size(), size - offset));
    BLOCKSCALE_RETURN_IF_ERROR(read(offset, chunk));
    XXH3_128bits_update(state.get(), chunk.data(), chunk.size());
  }
  return Hex(XXH3_128bits_digest(state.get()));
}

}  // namespace

std::string Xxh3Hex(std::span<const std::byte> bytes) {
  return Hex(XXH3_128bits(bytes.data(), bytes.size()));
}

Result<std::string> Xxh3OfFile(const ReadableFile& file, const std::function<bool()>& stop) {
  return DigestRange(file.facts().size, stop, [&](uint64_t offset, std::span<std::byte> chunk) {
    return file.ReadAt(offset, chunk);
  });
}

OutputFile::OutputFile(FileSystem& files, std::string folder, std::string path,
                       std::unique_ptr<WritableFile> file)
    : files_(files), folder_(std::move(folder)), path_(std::move(path)), file_(std::move(file)) {}

Result<std::unique_ptr<OutputFile>> OutputFile::Create(FileSystem& files, const std::string& folder,
                                                       const std::string& name) {
  const std::string path = JoinPath(folder, name);
  const std::string parent = std::filesystem::path(path).parent_path().string();
  if (parent != folder) {
    BLOCKSCALE_RETURN_IF_ERROR(files.CreateDirectories(parent));
    BLOCKSCALE_RETURN_IF_ERROR(files.SyncDirectory(folder));
  }
  const std::string partial = path + std::string(kPartialSuffix);
  BLOCKSCALE_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, files.Create(partial));
  return std::unique_ptr<OutputFile>(new OutputFile(files, parent, path, std::move(file)));
}

OutputFile::~OutputFile() {
  if (committed_) return;
  file_.reset();
  // Best effort: a partial that stays is overwritten by the next run.
  (void)files_.Remove(path_ + std::string(kPartialSuffix));
}

Status OutputFile::WriteAt(uint64_t offset, std::span<const std::byte> data) {
  return file_->WriteAt(offset, data);
}

Result<std::string> OutputFile::Digest(uint64_t size, const std::function<bool()>& stop) const {
  return DigestRange(size, stop, [&](uint64_t offset, std::span<std::byte> chunk) {
    return file_->ReadAt(offset, chunk);
  });
}

Status OutputFile::Flush(uint64_t size, const std::function<bool()>& stop) {
  for (uint64_t offset = 0; offset < size; offset += kFlushPiece) {
    if (stop && stop()) return Cancelled();
    BLOCKSCALE_RETURN_IF_ERROR(file_->FlushRange(offset, std::min(kFlushPiece, size - offset)));
  }
  file_->DropCache();
  return OkStatus();
}

Status OutputFile::Commit() {
  BLOCKSCALE_RETURN_IF_ERROR(file_->Sync());
  BLOCKSCALE_RETURN_IF_ERROR(file_->Close());
  BLOCKSCALE_RETURN_IF_ERROR(files_.Rename(path_ + std::string(kPartialSuffix), path_));
  committed_ = true;
  return files_.SyncDirectory(folder_);
}

Status WriteFileAtomically(FileSystem& files, const std::string& folder, const std::string& name,
                           std::string_view text) {
  BLOCKSCALE_ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> file,
                              OutputFile::Create(files, folder, name));
  BLOCKSCALE_RETURN_IF_ERROR(file->WriteAt(0, std::as_bytes(std::span(text))));
  return file->Commit();
}

}  // namespace blockscale
