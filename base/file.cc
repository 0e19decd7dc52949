// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <dirent.h>
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
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/mounted_folder.h"
#include "base/open_file.h"

namespace tessera {
namespace {

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

// Calls on it wait again, whatever it was opened with.
void LetWait(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK); }

// A clone without Git LFS has a few lines of text in place of each large file.
Status CheckIsContent(std::string_view content, const std::string& path) {
  constexpr size_t kLongestPointer = 1024;
  if (content.size() >= kLongestPointer ||
      !content.starts_with("version https://git-lfs.github.com/spec/")) {
    return OkStatus();
  }
  return InvalidArgument(path,
                         ": is a pointer of Git LFS in place of the file; `git lfs pull` "
                         "brings the file");
}

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

// A file's pages in this process, as long as it lives.
class Mapping {
 public:
  Mapping() = default;
  ~Mapping() {
    if (begin_ == nullptr) return;
    mapped_ranges.Remove(begin_);
    munmap(const_cast<std::byte*>(begin_), length_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  // `offset` is that of a page.
  Status Map(int descriptor, int64_t offset, int64_t length, const std::string& path) {
    length_ = static_cast<size_t>(length);
    void* begin = mmap(nullptr, length_, PROT_READ, MAP_SHARED, descriptor, offset);
    if (begin == MAP_FAILED) return SystemFailure(errno, path);
    begin_ = static_cast<const std::byte*>(begin);
    mapped_ranges.Add(begin_, length, path);
    return OkStatus();
  }
  const std::byte* begin() const { return begin_; }

 private:
  const std::byte* begin_ = nullptr;
  size_t length_ = 0;
};

StatusOr<const MountedFile*> FileAt(const mounted_internal::Place& place, const std::string& path) {
  const MountedFile* file = place.file();
  if (file != nullptr) return file;
  return SystemFailure(place.is_directory() ? EISDIR : ENOENT, path);
}

// The bytes of a mounted file: its own, or those that are read now.
StatusOr<std::shared_ptr<const std::byte>> BytesOf(const MountedFile& file) {
  if (file.size() == 0) return std::shared_ptr<const std::byte>();
  if (file.data() != nullptr) {
    return std::shared_ptr<const std::byte>(file.owner(), file.data());
  }
  constexpr std::align_val_t kAlignment{64};
  const std::shared_ptr<std::byte> bytes(
      static_cast<std::byte*>(operator new(static_cast<size_t>(file.size()), kAlignment)),
      [](std::byte* memory) { operator delete(memory, kAlignment); });
  TESSERA_RETURN_IF_ERROR(file.Read(0, bytes.get(), file.size()));
  return std::shared_ptr<const std::byte>(bytes);
}

// What is mounted cannot be written to.
Status CheckIsOnDisk(const std::string& path) {
  return mounted_internal::Find(path) ? SystemFailure(EROFS, path) : OkStatus();
}

// Whether a failed look at a path says that nothing is there, or that no file can have that name.
bool SaysMissing(int error) {
  return error == ENOENT || error == ENOTDIR || error == ENAMETOOLONG || error == ELOOP;
}

// For what must be sure of it.
bool IsSurelyDirectory(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// A file of sysfs says that it has a page, and has less.
bool SaysItsSize(int fd, const struct stat& info) {
  struct statfs system;
  return S_ISREG(info.st_mode) && fstatfs(fd, &system) == 0 && system.f_type != SYSFS_MAGIC;
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
  Descriptor fd(OpenFile(path, O_RDONLY));
  if (fd.get() < 0) return SystemFailure(errno, path);
  if (TEMP_FAILURE_RETRY(fsync(fd.get())) != 0 && errno != EINVAL && errno != ENOTSUP)
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

// What a directory holds, in no order. (The iterators of std::filesystem, and its functions that
// use them, end the process where memory ends.)
StatusOr<std::vector<std::string>> NamesIn(const std::string& directory) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(directory.c_str()), closedir);
  if (open == nullptr) return SystemFailure(errno, directory);
  std::vector<std::string> names;
  while (true) {
    errno = 0;
    const dirent* const entry = readdir(open.get());
    if (entry == nullptr && errno != 0) return SystemFailure(errno, directory);
    if (entry == nullptr) return names;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
}

Status SyncTree(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return SystemFailure(errno, path);
  if (S_ISDIR(info.st_mode)) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(path));
    for (const std::string& name : names) TESSERA_RETURN_IF_ERROR(SyncTree(JoinPath(path, name)));
  }
  return S_ISDIR(info.st_mode) || S_ISREG(info.st_mode) ? SyncPath(path) : OkStatus();
}

}  // namespace

std::string JoinPath(std::string_view directory, std::string_view name) {
  if (directory.empty()) return std::string(name);
  std::string path(directory);
  if (path.back() != '/') path += '/';
  return path.append(name);
}

// A path exists unless the system says that it does not. Where the system cannot tell (a failing
// disk, a folder that may not be searched, a server that has lost the file), whoever opens the path
// next gets that error and reports it. The answer "no" would silently leave out a file that exists.
bool PathExists(const std::string& path) {
  if (const auto place = mounted_internal::Find(path)) {
    return place->file() != nullptr || place->is_directory();
  }
  struct stat info;
  return stat(path.c_str(), &info) == 0 || !SaysMissing(errno);
}

bool IsDirectory(const std::string& path) {
  if (const auto place = mounted_internal::Find(path)) return place->is_directory();
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? S_ISDIR(info.st_mode) : !SaysMissing(errno);
}

StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) {
  if (const auto place = mounted_internal::Find(path)) {
    if (place->file() != nullptr) return SystemFailure(ENOTDIR, path);
    if (!place->is_directory()) return SystemFailure(ENOENT, path);
    return place->Names();
  }
  TESSERA_ASSIGN_OR_RETURN(std::vector<std::string> names, NamesIn(path));
  std::sort(names.begin(), names.end());
  return names;
}

Status MakeDirectories(const std::string& path) {
  TESSERA_RETURN_IF_ERROR(CheckIsOnDisk(path));
  const std::string whole = WithoutTrailingSlashes(path);
  for (size_t end = whole.find('/', 1);; end = whole.find('/', end + 1)) {
    const std::string part = whole.substr(0, end);
    if (mkdir(part.c_str(), 0777) != 0 && errno != EEXIST) {
      const int error = errno;  // there may be one where none may be made
      if (!IsSurelyDirectory(part)) return SystemFailure(error, path);
    }
    if (end == std::string::npos) break;
  }
  // What exists may be something else, or a link that leads nowhere.
  return IsSurelyDirectory(path) ? OkStatus() : SystemFailure(ENOTDIR, path);
}

Status RemoveAll(const std::string& path) {
  TESSERA_RETURN_IF_ERROR(CheckIsOnDisk(path));
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) {
    return errno == ENOENT || errno == ENOTDIR ? OkStatus() : SystemFailure(errno, path);
  }
  if (!S_ISDIR(info.st_mode)) {
    return unlink(path.c_str()) == 0 || errno == ENOENT ? OkStatus() : SystemFailure(errno, path);
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(path));
  for (const std::string& name : names) TESSERA_RETURN_IF_ERROR(RemoveAll(JoinPath(path, name)));
  return rmdir(path.c_str()) == 0 || errno == ENOENT ? OkStatus() : SystemFailure(errno, path);
}

Status RemoveTemporaries(const std::string& directory) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory));
  for (const std::string& name : names) {
    if (IsTemporary(name)) TESSERA_RETURN_IF_ERROR(RemoveAll(JoinPath(directory, name)));
  }
  return OkStatus();
}

StatusOr<std::string> ReadFile(const std::string& path) {
  if (const auto place = mounted_internal::Find(path)) {
    TESSERA_ASSIGN_OR_RETURN(const MountedFile* file, FileAt(*place, path));
    std::string content(static_cast<size_t>(file->size()), '\0');
    TESSERA_RETURN_IF_ERROR(file->Read(0, content.data(), file->size()));
    return content;
  }
  // Without O_NONBLOCK, opening a FIFO would wait for somebody to open its other end.
  Descriptor fd(OpenFile(path, O_RDONLY | O_NONBLOCK));
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
  if (static_cast<int64_t>(size) < info.st_size && SaysItsSize(fd.get(), info)) {
    return Failure(StatusCode::kDataLoss, path, ": was cut short while it was read");
  }
  content.resize(size);
  TESSERA_RETURN_IF_ERROR(CheckIsContent(content, path));
  return content;
}

StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  if (const auto place = mounted_internal::Find(path)) {
    TESSERA_ASSIGN_OR_RETURN(const MountedFile* source, FileAt(*place, path));
    MappedFile file;
    TESSERA_ASSIGN_OR_RETURN(file.data_, BytesOf(*source));
    file.size_ = source->size();
    file.path_ = path;
    return file;
  }
  Descriptor fd(OpenFile(path, O_RDONLY | O_NONBLOCK));
  if (fd.get() < 0) return SystemFailure(errno, path);
  return OfDescriptor(fd.get(), 0, -1, path);
}

StatusOr<MappedFile> MappedFile::OfDescriptor(int descriptor, int64_t offset, int64_t size,
                                              const std::string& name) {
  struct stat info;
  if (fstat(descriptor, &info) != 0) return SystemFailure(errno, name);
  if (S_ISDIR(info.st_mode)) return SystemFailure(EISDIR, name);
  if (!S_ISREG(info.st_mode)) return InvalidArgument(name, ": not a regular file");
  const int64_t all = info.st_size;
  if (offset < 0 || offset > all || size > all - offset) {
    return InvalidArgument(name, ": has ", all, " bytes; there are no ", std::max<int64_t>(size, 0),
                           " from ", offset, " on");
  }
  MappedFile file;
  file.path_ = name;
  file.size_ = size < 0 ? all - offset : size;
  if (file.size_ == 0) return file;
  const int64_t before = offset % sysconf(_SC_PAGESIZE);  // what is mapped begins with a page
  const auto mapping = std::make_shared<Mapping>();
  TESSERA_RETURN_IF_ERROR(mapping->Map(descriptor, offset - before, file.size_ + before, name));
  file.data_ = {mapping, mapping->begin() + before};
  TESSERA_RETURN_IF_ERROR(CheckIsContent(
      {reinterpret_cast<const char*>(file.data()), static_cast<size_t>(file.size())}, name));
  return file;
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
    : path_(std::move(path)), temporary_(std::move(temporary)), descriptor_(descriptor) {}

StatusOr<AtomicFile> AtomicFile::Create(const std::string& path) {
  TESSERA_RETURN_IF_ERROR(CheckIsOnDisk(path));
  // What takes memory comes before what has to be given back.
  AtomicFile file(path, "", -1);
  file.buffer_.reserve(kBufferBytes);
  if (const int open = NamedDescriptor(path); open >= 0) {
    file.descriptor_ = fcntl(open, F_DUPFD_CLOEXEC, 0);
    if (file.descriptor_ < 0) return SystemFailure(errno, path);
    return file;
  }
  struct stat info;
  if (stat(path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return SystemFailure(EISDIR, path);
    if (!S_ISREG(info.st_mode)) {
      const int fd = OpenFile(path, O_WRONLY | O_NONBLOCK);
      if (fd < 0 && errno == ENXIO) return InvalidArgument(path, ": is a FIFO that nobody reads");
      if (fd < 0) return SystemFailure(errno, path);
      LetWait(fd);
      file.descriptor_ = fd;
      return file;
    }
  }
  std::string destination = BehindLinks(path);
  file.temporary_ = TemporaryFor(destination);
  file.path_ = std::move(destination);
  // Of an earlier process of this number, or somebody's link to a file of ours: neither is written.
  unlink(file.temporary_.c_str());
  file.descriptor_ = OpenFile(file.temporary_, O_WRONLY | O_CREAT | O_EXCL, 0666);
  if (file.descriptor_ < 0) return SystemFailure(errno, path);
  return file;
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
  if (TEMP_FAILURE_RETRY(fsync(descriptor_)) != 0 && errno != EINVAL)
    return SystemFailure(errno, path_);
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
  std::string destination = WithoutTrailingSlashes(BehindLinks(WithoutTrailingSlashes(path)));
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
  try {
    RemoveAll(temporary_).IgnoreError();
  } catch (const std::bad_alloc&) {
    // RemoveTemporaries finds it.
  }
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
