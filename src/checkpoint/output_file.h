// Writing a file so that its final name never stands for half a file: the bytes go to
// "NAME.partial", are flushed to the disk, and only then get their name; the folder is flushed
// last. A crash leaves a partial (which the next run overwrites) or the whole file, nothing
// between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "checkpoint/file_system.h"

namespace blockscale {

inline constexpr std::string_view kPartialSuffix = ".partial";

// XXH3-128 of bytes, as 32 lower-case hex digits (the canonical, big-endian form of xxhsum -H2).
std::string Xxh3Hex(std::span<const std::byte> bytes);

// The same of a whole file, in chunks of 1 MiB; `stop`, when it becomes true, ends it (kCancelled).
Result<std::string> Xxh3OfFile(const ReadableFile& file, const std::function<bool()>& stop = {});

class OutputFile {
 public:
  // Creates the partial in `folder`; subfolders in `name` are created.
  static Result<std::unique_ptr<OutputFile>> Create(FileSystem& files, const std::string& folder,
                                                    const std::string& name);
  // Removes the partial unless Commit was reached.
  ~OutputFile();

  // Thread-safe for disjoint ranges.
  Status WriteAt(uint64_t offset, std::span<const std::byte> data);
  Status Truncate(uint64_t size) { return file_->Truncate(size); }
  void StartWriteback(uint64_t offset, uint64_t size) { file_->StartWriteback(offset, size); }
  // XXH3-128 of the first `size` bytes, read back.
  Result<std::string> Digest(uint64_t size, const std::function<bool()>& stop = {}) const;
  // Brings the first `size` bytes to the disk, in pieces, so that `stop` is heard on a slow one;
  // what Commit then still has to flush is small. kCancelled when stopped.
  Status Flush(uint64_t size, const std::function<bool()>& stop);
  // Flushes, renames, flushes the folder. The object is done afterwards.
  Status Commit();

 private:
  OutputFile(FileSystem& files, std::string folder, std::string path,
             std::unique_ptr<WritableFile> file);

  FileSystem& files_;
  std::string folder_;  // that holds the file, subfolders included
  std::string path_;    // final
  std::unique_ptr<WritableFile> file_;
  bool committed_ = false;
};

// A small file whole: Create, WriteAt, Commit.
Status WriteFileAtomically(FileSystem& files, const std::string& folder, const std::string& name,
                           std::string_view text);

}  // namespace blockscale
