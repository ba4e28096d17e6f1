// The one seam between blockscale and the disk: whatever is read from a checkpoint or written to
// one goes through a FileSystem, so that a test can make any single operation fail (tests/faults).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace blockscale {

// What identifies an unchanged file: size and modification time.
struct FileFacts {
  uint64_t size = 0;
  int64_t modified_ns = 0;  // since the epoch
  bool is_directory = false;
};

// A file open for reading. Thread-safe: every read names its offset. Links are followed.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual const std::string& path() const = 0;
  virtual FileFacts facts() const = 0;  // as they were when it was opened
  // Fills `out` whole or fails: a file that ends early is kInvalidInput, never a short read.
  virtual Status ReadAt(uint64_t offset, std::span<std::byte> out) const = 0;
};

// A file being written. WriteAt is thread-safe for disjoint ranges.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual const std::string& path() const = 0;
  virtual Status WriteAt(uint64_t offset, std::span<const std::byte> data) = 0;
  // Sets the length without writing: what lies between reads as zeros and takes no room on disk.
  virtual Status Truncate(uint64_t size) = 0;
  virtual Status ReadAt(uint64_t offset, std::span<std::byte> out) const = 0;
  // Asks the kernel to begin writing a range to the disk; a hint, it never fails.
  virtual void StartWriteback(uint64_t offset, uint64_t size) = 0;
  // Writes a range to the disk and waits for it; what the file needs besides its data stays for
  // Sync.
  virtual Status FlushRange(uint64_t offset, uint64_t size) = 0;
  // Lets the kernel forget cached data that is on the disk; a hint, it never fails.
  virtual void DropCache() = 0;
  virtual Status Sync() = 0;   // fsync
  virtual Status Close() = 0;  // the destructor closes too, but cannot report
};

// Holds an exclusive lock until it is destroyed.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual Result<std::unique_ptr<ReadableFile>> OpenForRead(const std::string& path) = 0;
  // Creates or truncates. A symbolic link in the way is an error: nothing is written through links.
  virtual Result<std::unique_ptr<WritableFile>> Create(const std::string& path) = 0;
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  virtual Status Remove(const std::string& path) = 0;
  virtual Status SyncDirectory(const std::string& path) = 0;
  virtual Status CreateDirectories(const std::string& path) = 0;
  virtual Result<FileFacts> Stat(const std::string& path) = 0;  // follows links
  virtual bool Exists(const std::string& path) = 0;             // a dangling link exists
  // Names (not paths) of the entries of a folder, sorted by bytes.
  virtual Result<std::vector<std::string>> List(const std::string& path) = 0;
  virtual Result<uint64_t> FreeBytes(const std::string& path) = 0;  // for an unprivileged user
  // Refuses (kRefused) when another process holds the lock.
  virtual Result<std::unique_ptr<FileLock>> Lock(const std::string& path) = 0;
};

// The machine's own file system. Lives as long as the program.
FileSystem& PosixFileSystem();

// Reads a whole small file (a config, an index); refuses one larger than `limit` bytes.
Result<std::string> ReadTextFile(FileSystem& files, const std::string& path, uint64_t limit);

// Free bytes of the file system that holds the folder or, where it does not exist yet, its nearest
// parent that does.
Result<uint64_t> FreeBytesAt(FileSystem& files, const std::string& folder);

// "a/b" + "c" -> "a/b/c".
std::string JoinPath(const std::string& folder, const std::string& name);

}  // namespace blockscale
