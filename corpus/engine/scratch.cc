// SPDX-License-Identifier: Apache-2.0
#include "corpus/engine/scratch.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/file.h"
#include "base/open_file.h"
#include "core/thread_pool.h"

namespace tessera::corpus {
namespace {

constexpr int64_t kBucketBytes = int64_t{4} << 20;
constexpr int64_t kLeastBuckets = 16;
// Each is an open file.
constexpr int64_t kMostBuckets = 512;

Status ReadAt(int fd, const std::string& path, int64_t offset, void* to, size_t size) {
  auto* at = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t n = pread(fd, at, size, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemFailure(errno, path, ": cannot read");
    if (n == 0) return DataLoss(path, ": ends before byte ", offset);
    at += n;
    offset += n;
    size -= static_cast<size_t>(n);
  }
  return OkStatus();
}

}  // namespace

StatusOr<RandomFile> RandomFile::Open(const std::string& path) {
  const int fd = OpenFile(path, O_RDONLY);
  if (fd < 0) return SystemFailure(errno, path, ": cannot read");
  struct stat status;
  if (fstat(fd, &status) != 0) {
    const int error = errno;
    close(fd);
    return SystemFailure(error, path, ": cannot read");
  }
  return RandomFile(path, fd, status.st_size);
}

RandomFile::RandomFile(RandomFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

RandomFile& RandomFile::operator=(RandomFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  return *this;
}

RandomFile::~RandomFile() {
  if (fd_ >= 0) close(fd_);
}

Status RandomFile::Read(int64_t offset, void* to, size_t size) const {
  return ReadAt(fd_, path_, offset, to, size);
}

StatusOr<MappedBytes> MappedBytes::Create(const std::string& folder, int64_t size) {
  if (size == 0) return MappedBytes(nullptr, 0);
  std::string path = JoinPath(folder, "mapped-XXXXXX");
  const int fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) return SystemFailure(errno, folder, ": cannot write");
  unlink(path.c_str());
  // A page that the disk has no place for would end the process when it is written to.
  int no_place;
  do {
    no_place = posix_fallocate(fd, 0, size);
  } while (no_place == EINTR);
  if (no_place != 0) {
    close(fd);
    return SystemFailure(no_place, folder, ": cannot reserve ", size, " bytes");
  }
  void* const data =
      mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const int error = errno;
  close(fd);
  if (data == MAP_FAILED) return SystemFailure(error, folder, ": cannot map a file");
  return MappedBytes(data, size);
}

MappedBytes::~MappedBytes() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(size_));
}

StatusOr<std::unique_ptr<BucketFiles>> BucketFiles::Create(const std::string& folder,
                                                           int64_t count) {
  TESSERA_RETURN_IF_ERROR(RemoveAll(folder));
  TESSERA_RETURN_IF_ERROR(MakeDirectories(folder));
  std::unique_ptr<BucketFiles> buckets(new BucketFiles(folder));
  for (int64_t i = 0; i < count; ++i) {
    const int fd = OpenFile(buckets->PathOf(i), O_RDWR | O_CREAT | O_APPEND, 0600);
    if (fd < 0) return SystemFailure(errno, buckets->PathOf(i), ": cannot write");
    buckets->files_.push_back(fd);
  }
  return buckets;
}

BucketFiles::~BucketFiles() {
  for (const int fd : files_) close(fd);
  RemoveAll(folder_).IgnoreError();
}

std::string BucketFiles::PathOf(int64_t bucket) const {
  return JoinPath(folder_, std::to_string(bucket));
}

// One call of write: pieces of several threads do not mix.
Status BucketFiles::PutBytes(int64_t bucket, const void* bytes, size_t size) {
  ssize_t n = -1;
  do {
    n = write(files_[static_cast<size_t>(bucket)], bytes, size);
  } while (n < 0 && errno == EINTR);
  if (n == static_cast<ssize_t>(size)) return OkStatus();
  return SystemFailure(n < 0 ? errno : ENOSPC, PathOf(bucket), ": cannot write");
}

StatusOr<int64_t> BucketFiles::Size(int64_t bucket) const {
  struct stat status;
  if (fstat(files_[static_cast<size_t>(bucket)], &status) == 0) return status.st_size;
  return SystemFailure(errno, PathOf(bucket), ": cannot read");
}

Status BucketFiles::TakeBytes(int64_t bucket, void* to, size_t size) const {
  return ReadAt(files_[static_cast<size_t>(bucket)], PathOf(bucket), 0, to, size);
}

int64_t BucketsFor(int64_t bytes) {
  return std::clamp(bytes / kBucketBytes, kLeastBuckets, kMostBuckets);
}

Status ParallelTasks(int64_t count, const std::function<Status(int64_t)>& task) {
  std::vector<Status> statuses(static_cast<size_t>(count));
  ParallelFor(count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) statuses[static_cast<size_t>(i)] = task(i);
  });
  for (const Status& status : statuses) TESSERA_RETURN_IF_ERROR(status);
  return OkStatus();
}

}  // namespace tessera::corpus
