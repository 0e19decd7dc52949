#include "core/file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBufferBytes = size_t{1} << 18;
// Some systems cut one call at 2 GiB; this is well below.
constexpr size_t kLargestWrite = size_t{1} << 30;

// Owns a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

int OpenRetrying(const std::string& path, int flags, mode_t mode = 0) {
  int fd;
  do {
    fd = open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

// Calls on it wait again, whatever it was opened with.
void LetWait(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK); }

// Where mapped files lie, for whoever is told of a fault: written by one thread at a time, and read
// by a signal handler, which may take no lock and no memory.
class MappedRanges {
 public:
  void Add(const std::byte* begin, int64_t size, const std::string& path) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Range& range : ranges_) {
      if (range.begin.load(std::memory_order_relaxed) != nullptr) continue;
      range.size = size;
      range.path[path.copy(range.path, sizeof(range.path) - 1)] = '\0';
      range.begin.store(begin, std::memory_order_release);
      return;
    }
  }
  void Remove(const std::byte* begin) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Range& range : ranges_) {
      if (range.begin.load(std::memory_order_relaxed) == begin) range.begin = nullptr;
    }
  }
  // nullptr: in none that is known.
  const char* PathAt(const void* address) const {
    for (const Range& range : ranges_) {
      const std::byte* begin = range.begin.load(std::memory_order_acquire);
      if (begin != nullptr && address >= begin && address < begin + range.size) return range.path;
    }
    return nullptr;
  }

 private:
  struct Range {
    std::atomic<const std::byte*> begin{nullptr};
    int64_t size = 0;
    char path[488] = {};
  };
  std::mutex mutex_;
  Range ranges_[1024];  // of more files the rest is not named
};
constinit MappedRanges mapped_ranges;

void OnBusError(int, siginfo_t* info, void*) {
  const char* path = mapped_ranges.PathAt(info->si_addr);
  if (path == nullptr) {  // not ours to explain: as if there were no handler
    signal(SIGBUS, SIG_DFL);
    return;
  }
  for (const char* part : {"error: ", path, ": was cut short while it was read\n"}) {
    if (write(STDERR_FILENO, part, strlen(part)) < 0) break;
  }
  _exit(1);
}

// A pipe of the shell's (`<(command)`, `|`), which has no name and somebody at its other end.
bool IsAnonymousPipe(int fd) {
  struct statfs info;
  return fstatfs(fd, &info) == 0 && info.f_type == PIPEFS_MAGIC;
}

Status WriteAll(int fd, const char* bytes, size_t size, const std::string& path) {
  while (size > 0) {
    const ssize_t written = write(fd, bytes, std::min(size, kLargestWrite));
    if (written < 0) {
      if (errno == EINTR) continue;
      return SystemFailure(errno, path);
    }
    if (written == 0) return SystemFailure(ENOSPC, path);
    bytes += written;
    size -= static_cast<size_t>(written);
  }
  return OkStatus();
}

// Makes a file's or a directory's state durable; systems without that for directories are fine.
Status SyncPath(const std::string& path) {
  Descriptor fd(OpenRetrying(path, O_RDONLY));
  if (fd.get() < 0) return SystemFailure(errno, path);
  if (fsync(fd.get()) != 0 && errno != EINVAL && errno != ENOTSUP)
    return SystemFailure(errno, path);
  return OkStatus();
}

std::string WithoutTrailingSlashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string ParentOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string TemporaryFor(const std::string& path) {
  static std::atomic<int> count{0};
  return Concat(path, ".tmp-", getpid(), "-", count.fetch_add(1));
}

bool IsTemporary(std::string_view name) {
  const size_t at = name.rfind(".tmp-");
  if (at == std::string_view::npos || at == 0) return false;
  const std::string_view tail = name.substr(at + 5);
  const size_t dash = tail.find('-');
  return dash != 0 && dash != std::string_view::npos && dash + 1 < tail.size() &&
         tail.find_first_not_of("0123456789-") == std::string_view::npos &&
         tail.find('-', dash + 1) == std::string_view::npos;
}

Status SyncTree(const std::string& root) {
  std::error_code error;
  fs::recursive_directory_iterator it(root, error);
  const fs::recursive_directory_iterator end;
  for (; !error && it != end; it.increment(error)) {
    const bool plain = it->is_regular_file(error) || it->is_directory(error);
    if (error) break;
    if (plain) TESSERA_RETURN_IF_ERROR(SyncPath(it->path().string()));
  }
  if (error) return SystemFailure(error.value(), root);
  return SyncPath(root);
}

}  // namespace

std::string JoinPath(std::string_view directory, std::string_view name) {
  if (directory.empty()) return std::string(name);
  std::string path(directory);
  if (path.back() != '/') path += '/';
  return path.append(name);
}

bool PathExists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

bool IsDirectory(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  fs::directory_iterator it(path, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) return SystemFailure(error.value(), path);
  std::sort(names.begin(), names.end());
  return names;
}

Status MakeDirectories(const std::string& path) {
  std::error_code error;
  fs::create_directories(WithoutTrailingSlashes(path), error);
  if (error) return SystemFailure(error.value(), path);
  // Through a link that leads nowhere, create_directories reports nothing.
  if (!IsDirectory(path)) return SystemFailure(ENOTDIR, path);
  return OkStatus();
}

Status RemoveAll(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  return error ? SystemFailure(error.value(), path) : OkStatus();
}

Status RemoveTemporaries(const std::string& directory) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory));
  for (const std::string& name : names) {
    if (IsTemporary(name)) TESSERA_RETURN_IF_ERROR(RemoveAll(JoinPath(directory, name)));
  }
  return OkStatus();
}

StatusOr<std::string> ReadFile(const std::string& path) {
  // Without O_NONBLOCK, opening a FIFO would wait for somebody to open its other end.
  Descriptor fd(OpenRetrying(path, O_RDONLY | O_NONBLOCK));
  if (fd.get() < 0) return SystemFailure(errno, path);
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return SystemFailure(errno, path);
  if (S_ISDIR(info.st_mode)) return SystemFailure(EISDIR, path);
  // One byte more than the size, so that the end shows without growing. The size is a hint only.
  size_t capacity = S_ISREG(info.st_mode) && info.st_size > 0 ? info.st_size + 1 : kBufferBytes;
  std::string content;
  size_t size = 0;
  while (true) {
    if (content.size() == size) content.resize(std::max(capacity, 2 * size));
    const ssize_t got =
        read(fd.get(), content.data() + size, std::min(content.size() - size, kLargestWrite));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {
      LetWait(fd.get());
      continue;
    }
    if (got < 0) return SystemFailure(errno, path);
    if (got == 0 && size == 0 && S_ISFIFO(info.st_mode) && !IsAnonymousPipe(fd.get())) {
      return InvalidArgument(path, ": is a FIFO that nobody writes to");
    }
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  content.resize(size);
  return content;
}

StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  Descriptor fd(OpenRetrying(path, O_RDONLY | O_NONBLOCK));
  if (fd.get() < 0) return SystemFailure(errno, path);
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return SystemFailure(errno, path);
  if (S_ISDIR(info.st_mode)) return SystemFailure(EISDIR, path);
  if (!S_ISREG(info.st_mode)) return InvalidArgument(path, ": not a regular file");
  MappedFile file;
  file.path_ = path;
  file.size_ = info.st_size;
  if (file.size_ > 0) {
    void* data = mmap(nullptr, static_cast<size_t>(file.size_), PROT_READ, MAP_SHARED, fd.get(), 0);
    if (data == MAP_FAILED) {
      const int error = errno;
      file.size_ = 0;
      return SystemFailure(error, path);
    }
    file.data_ = static_cast<const std::byte*>(data);
    mapped_ranges.Add(file.data_, file.size_, path);
  }
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  mapped_ranges.Remove(data_);
  munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_));
}

void EndWhenMappedFilesShrink() {
  struct sigaction action = {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

Status WriteFileAtomically(const std::string& path, std::string_view content) {
  TESSERA_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  TESSERA_RETURN_IF_ERROR(file.Append(content));
  return file.Commit();
}

AtomicFile::AtomicFile(std::string path, std::string temporary, int descriptor)
    : path_(std::move(path)), temporary_(std::move(temporary)), descriptor_(descriptor) {
  buffer_.reserve(kBufferBytes);
}

StatusOr<AtomicFile> AtomicFile::Create(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return SystemFailure(EISDIR, path);
    if (!S_ISREG(info.st_mode)) {
      const int fd = OpenRetrying(path, O_WRONLY | O_NONBLOCK);
      if (fd < 0 && errno == ENXIO) return InvalidArgument(path, ": is a FIFO that nobody reads");
      if (fd < 0) return SystemFailure(errno, path);
      LetWait(fd);
      return AtomicFile(path, "", fd);
    }
  }
  // A link stays a link: what it points to is replaced.
  std::error_code error;
  std::string destination = path;
  if (fs::is_symlink(path, error)) {
    const fs::path target = fs::canonical(path, error);
    if (!error) destination = target.string();
  }
  std::string temporary = TemporaryFor(destination);
  const int fd = OpenRetrying(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (fd < 0) return SystemFailure(errno, path);
  return AtomicFile(std::move(destination), std::move(temporary), fd);
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      buffer_(std::move(other.buffer_)) {}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

Status AtomicFile::Flush() {
  Status status = WriteAll(descriptor_, buffer_.data(), buffer_.size(), path_);
  buffer_.clear();
  return status;
}

Status AtomicFile::Append(const void* bytes, size_t size) {
  if (descriptor_ < 0)
    return Failure(StatusCode::kFailedPrecondition, path_, ": already committed");
  if (buffer_.size() + size > kBufferBytes) {
    TESSERA_RETURN_IF_ERROR(Flush());
    if (size >= kBufferBytes) {
      return WriteAll(descriptor_, static_cast<const char*>(bytes), size, path_);
    }
  }
  const char* begin = static_cast<const char*>(bytes);
  buffer_.insert(buffer_.end(), begin, begin + size);
  return OkStatus();
}

Status AtomicFile::Commit() {
  if (descriptor_ < 0)
    return Failure(StatusCode::kFailedPrecondition, path_, ": already committed");
  TESSERA_RETURN_IF_ERROR(Flush());
  if (fsync(descriptor_) != 0 && errno != EINVAL) return SystemFailure(errno, path_);
  // A network file system may report a full disk only here.
  const bool closed = close(std::exchange(descriptor_, -1)) == 0 || errno == EINTR;
  if (closed && temporary_.empty()) return OkStatus();
  if (!closed || rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    if (!temporary_.empty()) unlink(temporary_.c_str());
    return SystemFailure(error, path_);
  }
  return SyncPath(ParentOf(path_));
}

AtomicDirectory::AtomicDirectory(std::string path, std::string temporary)
    : path_(std::move(path)), temporary_(std::move(temporary)) {}

StatusOr<AtomicDirectory> AtomicDirectory::Create(const std::string& path) {
  std::string destination = WithoutTrailingSlashes(path);
  TESSERA_RETURN_IF_ERROR(MakeDirectories(ParentOf(destination)));
  std::string temporary = TemporaryFor(destination);
  TESSERA_RETURN_IF_ERROR(RemoveAll(temporary));
  if (mkdir(temporary.c_str(), 0777) != 0) return SystemFailure(errno, path);
  return AtomicDirectory(std::move(destination), std::move(temporary));
}

AtomicDirectory::AtomicDirectory(AtomicDirectory&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, "")) {}

AtomicDirectory::~AtomicDirectory() {
  if (temporary_.empty()) return;
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
}

Status AtomicDirectory::Commit() {
  if (temporary_.empty())
    return Failure(StatusCode::kFailedPrecondition, path_, ": already committed");
  TESSERA_RETURN_IF_ERROR(SyncTree(temporary_));
  // rename() alone would replace an empty directory.
  if (PathExists(path_)) return SystemFailure(EEXIST, path_);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return SystemFailure(errno, path_);
  temporary_.clear();
  return SyncPath(ParentOf(path_));
}

Status AtomicDirectory::CommitReplacing() {
  if (!PathExists(path_)) return Commit();
  TESSERA_RETURN_IF_ERROR(SyncTree(temporary_));
  if (renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno != EINVAL && errno != ENOSYS) return SystemFailure(errno, path_);
    // A file system that cannot exchange: the old one steps aside, and back if that is all.
    const std::string aside = Concat(path_, ".old-", getpid());
    if (rename(path_.c_str(), aside.c_str()) != 0) return SystemFailure(errno, path_);
    if (rename(temporary_.c_str(), path_.c_str()) != 0) {
      const int error = errno;
      rename(aside.c_str(), path_.c_str());
      return SystemFailure(error, path_);
    }
    temporary_ = aside;
  }
  TESSERA_RETURN_IF_ERROR(SyncPath(ParentOf(path_)));
  return RemoveAll(std::exchange(temporary_, ""));
}

}  // namespace tessera
