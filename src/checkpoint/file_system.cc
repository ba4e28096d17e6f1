#include "checkpoint/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

namespace blockscale {
namespace {

// Owns a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int get() const { return number_; }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

FileFacts FactsOf(const struct stat& status) {
  return {.size = static_cast<uint64_t>(status.st_size),
          .modified_ns = int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec,
          .is_directory = S_ISDIR(status.st_mode)};
}

Status ReadFully(int fd, const std::string& path, uint64_t offset, std::span<std::byte> out) {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t got =
        ::pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return IoError("read", path, errno);
    if (got == 0) {
      return InvalidInput(
          "{}: ends at byte {} where bytes up to {} were expected; the file was truncated, copy it "
          "again",
          path, offset + done, offset + out.size());
    }
    done += static_cast<size_t>(got);
  }
  return OkStatus();
}

class PosixReadableFile final : public ReadableFile {
 public:
  PosixReadableFile(Descriptor fd, std::string path, FileFacts facts)
      : fd_(std::move(fd)), path_(std::move(path)), facts_(facts) {}
  const std::string& path() const override { return path_; }
  FileFacts facts() const override { return facts_; }
  Status ReadAt(uint64_t offset, std::span<std::byte> out) const override {
    return ReadFully(fd_.get(), path_, offset, out);
  }

 private:
  Descriptor fd_;
  std::string path_;
  FileFacts facts_;
};

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(Descriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  const std::string& path() const override { return path_; }

  Status WriteAt(uint64_t offset, std::span<const std::byte> data) override {
    size_t done = 0;
    while (done < data.size()) {
      const ssize_t put = ::pwrite(fd_.get(), data.data() + done, data.size() - done,
                                   static_cast<off_t>(offset + done));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return IoError("write", path_, errno);
      done += static_cast<size_t>(put);
    }
    return OkStatus();
  }

  Status Truncate(uint64_t size) override {
    if (::ftruncate(fd_.get(), static_cast<off_t>(size)) != 0)
      return IoError("set the length of", path_, errno);
    return OkStatus();
  }

  Status ReadAt(uint64_t offset, std::span<std::byte> out) const override {
    return ReadFully(fd_.get(), path_, offset, out);
  }

  void StartWriteback(uint64_t offset, uint64_t size) override {
    ::sync_file_range(fd_.get(), static_cast<off_t>(offset), static_cast<off_t>(size),
                      SYNC_FILE_RANGE_WRITE);
  }

  Status FlushRange(uint64_t offset, uint64_t size) override {
    constexpr unsigned kWriteAndWait =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    if (::sync_file_range(fd_.get(), static_cast<off_t>(offset), static_cast<off_t>(size),
                          kWriteAndWait) != 0)
      return IoError("flush to disk", path_, errno);
    return OkStatus();
  }

  Status Sync() override {
    if (::fsync(fd_.get()) != 0) return IoError("flush to disk", path_, errno);
    return OkStatus();
  }

  void DropCache() override { ::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED); }

  Status Close() override {
    if (::close(fd_.release()) != 0) return IoError("close", path_, errno);
    return OkStatus();
  }

 private:
  Descriptor fd_;
  std::string path_;
};

class PosixFileLock final : public FileLock {
 public:
  explicit PosixFileLock(Descriptor fd) : fd_(std::move(fd)) {}

 private:
  Descriptor fd_;  // closing it gives the lock back
};

class PosixFiles final : public FileSystem {
 public:
  Result<std::unique_ptr<ReadableFile>> OpenForRead(const std::string& path) override {
    // O_NONBLOCK: opening a FIFO by mistake must not hang; it changes nothing for regular files.
    Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (fd.get() < 0) return IoError("open", path, errno);
    struct stat status;
    if (::fstat(fd.get(), &status) != 0) return IoError("examine", path, errno);
    if (!S_ISREG(status.st_mode)) return InvalidInput("{}: is not a regular file", path);
    return std::unique_ptr<ReadableFile>(
        new PosixReadableFile(std::move(fd), path, FactsOf(status)));
  }

  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    Descriptor fd(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (fd.get() < 0) return IoError("create", path, errno);
    return std::unique_ptr<WritableFile>(new PosixWritableFile(std::move(fd), path));
  }

  Status Rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0)
      return IoError("rename " + from + " to", to, errno);
    return OkStatus();
  }

  Status Remove(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) return IoError("remove", path, errno);
    return OkStatus();
  }

  Status SyncDirectory(const std::string& path) override {
    Descriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd.get() < 0) return IoError("open folder", path, errno);
    // Some file systems cannot flush a folder and say EINVAL: there is nothing to flush there.
    if (::fsync(fd.get()) != 0 && errno != EINVAL) return IoError("flush folder", path, errno);
    return OkStatus();
  }

  Status CreateDirectories(const std::string& path) override {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) return IoError("create folder", path, error.value());
    return OkStatus();
  }

  Result<FileFacts> Stat(const std::string& path) override {
    struct stat status;
    if (::stat(path.c_str(), &status) != 0) return IoError("examine", path, errno);
    return FactsOf(status);
  }

  bool Exists(const std::string& path) override {
    struct stat status;
    return ::lstat(path.c_str(), &status) == 0;
  }

  Result<std::vector<std::string>> List(const std::string& path) override {
    std::error_code error;
    std::filesystem::directory_iterator entries(path, error), end;
    std::vector<std::string> names;
    for (; !error && entries != end; entries.increment(error))
      names.push_back(entries->path().filename().string());
    if (error) return IoError("list folder", path, error.value());
    std::sort(names.begin(), names.end());
    return names;
  }

  Result<uint64_t> FreeBytes(const std::string& path) override {
    struct statvfs status;
    if (::statvfs(path.c_str(), &status) != 0) return IoError("ask free space of", path, errno);
    return uint64_t{status.f_bavail} * status.f_frsize;
  }

  Result<std::unique_ptr<FileLock>> Lock(const std::string& path) override {
    // The lock sits on the folder itself: no lock file stays behind, and it dies with its process.
    Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (fd.get() < 0) return IoError("open", path, errno);
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return IoError("lock", path, errno);
      return Refused("{}: another blockscale process is writing there; wait for it or stop it",
                     path);
    }
    return std::unique_ptr<FileLock>(new PosixFileLock(std::move(fd)));
  }
};

}  // namespace

FileSystem& PosixFileSystem() {
  static PosixFiles files;
  return files;
}

Result<std::string> ReadTextFile(FileSystem& files, const std::string& path, uint64_t limit) {
  BLOCKSCALE_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, files.OpenForRead(path));
  const uint64_t size = file->facts().size;
  if (size > limit)
    return InvalidInput("{}: has {} bytes, more than the limit of {}", path, size, limit);
  std::string text(size, '\0');
  BLOCKSCALE_RETURN_IF_ERROR(file->ReadAt(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Result<uint64_t> FreeBytesAt(FileSystem& files, const std::string& folder) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::absolute(folder, error);
  if (error) return IoError("resolve", folder, error.value());
  while (!files.Exists(path.string()) && path.has_relative_path()) path = path.parent_path();
  return files.FreeBytes(path.string());
}

std::string JoinPath(const std::string& folder, const std::string& name) {
  return (std::filesystem::path(folder) / name).string();
}

}  // namespace blockscale
