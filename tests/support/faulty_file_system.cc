#include "support/faulty_file_system.h"

#include <cerrno>
#include <utility>

namespace blockscale::testing {
namespace {

class FaultyReadable final : public ReadableFile {
 public:
  FaultyReadable(FaultyFileSystem& owner, std::unique_ptr<ReadableFile> real)
      : owner_(owner), real_(std::move(real)) {}
  const std::string& path() const override { return real_->path(); }
  FileFacts facts() const override { return real_->facts(); }
  Status ReadAt(uint64_t offset, std::span<std::byte> out) const override {
    if (owner_.NextReadFails()) return IoError("read", path(), EIO);
    return real_->ReadAt(offset, out);
  }

 private:
  FaultyFileSystem& owner_;
  std::unique_ptr<ReadableFile> real_;
};

class FaultyWritable final : public WritableFile {
 public:
  FaultyWritable(FaultyFileSystem& owner, std::unique_ptr<WritableFile> real)
      : owner_(owner), real_(std::move(real)) {}
  const std::string& path() const override { return real_->path(); }
  Status WriteAt(uint64_t offset, std::span<const std::byte> data) override {
    switch (owner_.NextWrite()) {
      case FaultyFileSystem::Verdict::kGo:
        return real_->WriteAt(offset, data);
      case FaultyFileSystem::Verdict::kHalf:
        (void)real_->WriteAt(offset, data.first(data.size() / 2));
        break;
      case FaultyFileSystem::Verdict::kFail:
        break;
    }
    return owner_.WriteError(path());
  }
  Status Truncate(uint64_t size) override {
    if (owner_.NextWrite() != FaultyFileSystem::Verdict::kGo) return owner_.WriteError(path());
    return real_->Truncate(size);
  }
  Status ReadAt(uint64_t offset, std::span<std::byte> out) const override {
    if (owner_.NextReadFails()) return IoError("read", path(), EIO);
    return real_->ReadAt(offset, out);
  }
  void StartWriteback(uint64_t offset, uint64_t size) override {
    real_->StartWriteback(offset, size);
  }
  Status FlushRange(uint64_t offset, uint64_t size) override {
    if (owner_.NextWrite() != FaultyFileSystem::Verdict::kGo) return owner_.WriteError(path());
    return real_->FlushRange(offset, size);
  }
  void DropCache() override { real_->DropCache(); }
  Status Sync() override {
    // A simulated crash loses nothing that was written, so waiting for the disk would show nothing.
    if (owner_.NextWrite() != FaultyFileSystem::Verdict::kGo) return owner_.WriteError(path());
    return Status();
  }
  Status Close() override { return real_->Close(); }

 private:
  FaultyFileSystem& owner_;
  std::unique_ptr<WritableFile> real_;
};

}  // namespace

void FaultyFileSystem::Arm(Fault fault, int64_t nth) {
  fault_ = fault;
  nth_ = nth;
  writes_ = reads_ = 0;
  crashed_ = false;
}

FaultyFileSystem::Verdict FaultyFileSystem::NextWrite() {
  const int64_t count = ++writes_;
  if (crashed_) return Verdict::kFail;
  switch (fault_.load()) {
    case Fault::kDiskFull:
      return count >= nth_ ? Verdict::kFail : Verdict::kGo;
    case Fault::kWriteEio:
      return count == nth_ ? Verdict::kFail : Verdict::kGo;
    case Fault::kCrash:
      if (count != nth_) return Verdict::kGo;
      crashed_ = true;
      return Verdict::kHalf;
    case Fault::kNone:
    case Fault::kReadEio:
      break;
  }
  return Verdict::kGo;
}

bool FaultyFileSystem::NextReadFails() {
  return ++reads_ == nth_ && fault_.load() == Fault::kReadEio;
}

Status FaultyFileSystem::WriteError(const std::string& path) const {
  return IoError("write", path, fault_.load() == Fault::kDiskFull ? ENOSPC : EIO);
}

Result<std::unique_ptr<ReadableFile>> FaultyFileSystem::OpenForRead(const std::string& path) {
  BLOCKSCALE_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, real_.OpenForRead(path));
  return std::unique_ptr<ReadableFile>(new FaultyReadable(*this, std::move(file)));
}

Result<std::unique_ptr<WritableFile>> FaultyFileSystem::Create(const std::string& path) {
  if (NextWrite() != Verdict::kGo) return WriteError(path);
  BLOCKSCALE_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, real_.Create(path));
  return std::unique_ptr<WritableFile>(new FaultyWritable(*this, std::move(file)));
}

Status FaultyFileSystem::Rename(const std::string& from, const std::string& to) {
  if (NextWrite() != Verdict::kGo) return WriteError(to);
  return real_.Rename(from, to);
}

Status FaultyFileSystem::Remove(const std::string& path) {
  if (NextWrite() != Verdict::kGo) return WriteError(path);
  return real_.Remove(path);
}

Status FaultyFileSystem::SyncDirectory(const std::string& path) {
  if (NextWrite() != Verdict::kGo) return WriteError(path);
  return Status();
}

Status FaultyFileSystem::CreateDirectories(const std::string& path) {
  if (NextWrite() != Verdict::kGo) return WriteError(path);
  return real_.CreateDirectories(path);
}

Result<uint64_t> FaultyFileSystem::FreeBytes(const std::string& path) {
  if (free_bytes != ~uint64_t{0}) return free_bytes;
  return real_.FreeBytes(path);
}

}  // namespace blockscale::testing
