// A file system that fails on purpose: counts the operations that change or read something, and
// makes the n-th of them go wrong in one of several ways. Everything else reaches the real disk.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"

namespace blockscale::testing {

class FaultyFileSystem final : public FileSystem {
 public:
  enum class Fault {
    kNone,
    kDiskFull,  // the n-th write (and every later one) says ENOSPC
    kWriteEio,  // the n-th write says EIO, later ones work
    kReadEio,   // the n-th read says EIO, later ones work
    kCrash,  // the n-th write puts half of its bytes down, then nothing reaches the disk any more
  };

  explicit FaultyFileSystem(FileSystem& real) : real_(real) {}
  // The n-th operation of its kind from now on (1 is the next one).
  void Arm(Fault fault, int64_t nth);

  int64_t writes() const { return writes_; }  // create, write, truncate, sync, rename, remove
  int64_t reads() const { return reads_; }
  uint64_t free_bytes = ~uint64_t{0};  // what FreeBytes answers; the real answer when all ones

  Result<std::unique_ptr<ReadableFile>> OpenForRead(const std::string& path) override;
  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status Remove(const std::string& path) override;
  Status SyncDirectory(const std::string& path) override;
  Status CreateDirectories(const std::string& path) override;
  Result<FileFacts> Stat(const std::string& path) override { return real_.Stat(path); }
  bool Exists(const std::string& path) override { return real_.Exists(path); }
  Result<std::vector<std::string>> List(const std::string& path) override {
    return real_.List(path);
  }
  Result<uint64_t> FreeBytes(const std::string& path) override;
  Result<std::unique_ptr<FileLock>> Lock(const std::string& path) override {
    return real_.Lock(path);
  }

  // For the files it hands out.
  enum class Verdict { kGo, kFail, kHalf };
  Verdict NextWrite();
  bool NextReadFails();
  Status WriteError(const std::string& path) const;

 private:
  FileSystem& real_;
  std::atomic<Fault> fault_ = Fault::kNone;
  std::atomic<int64_t> nth_ = 0;
  std::atomic<int64_t> writes_ = 0;
  std::atomic<int64_t> reads_ = 0;
  std::atomic<bool> crashed_ = false;
};

}  // namespace blockscale::testing
