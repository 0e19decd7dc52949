// SPDX-License-Identifier: Apache-2.0
// What a step keeps on the disk instead of in memory.
#ifndef TESSERA_CORPUS_ENGINE_SCRATCH_H_
#define TESSERA_CORPUS_ENGINE_SCRATCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/status.h"

namespace tessera::corpus {

// A file that is read at any place, by several threads at once.
class RandomFile {
 public:
  static StatusOr<RandomFile> Open(const std::string& path);
  RandomFile(RandomFile&& other) noexcept;
  RandomFile& operator=(RandomFile&& other) noexcept;
  ~RandomFile();

  int64_t size() const { return size_; }
  // All of the bytes, or DataLoss.
  Status Read(int64_t offset, void* to, size_t size) const;
  template <typename T>
  StatusOr<std::vector<T>> ReadAll(int64_t offset, int64_t count) const {
    std::vector<T> values(static_cast<size_t>(count));
    TESSERA_RETURN_IF_ERROR(Read(offset, values.data(), values.size() * sizeof(T)));
    return values;
  }

 private:
  RandomFile(std::string path, int fd, int64_t size)
      : path_(std::move(path)), fd_(fd), size_(size) {}
  std::string path_;
  int fd_ = -1;
  int64_t size_ = 0;
};

// An array of zeros in a file without a name, which the system writes out when memory is short.
class MappedBytes {
 public:
  static StatusOr<MappedBytes> Create(const std::string& folder, int64_t size);
  MappedBytes(MappedBytes&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedBytes& operator=(MappedBytes&&) = delete;
  ~MappedBytes();
  template <typename T>
  std::span<T> As() const {
    return {static_cast<T*>(data_), static_cast<size_t>(size_) / sizeof(T)};
  }

 private:
  MappedBytes(void* data, int64_t size) : data_(data), size_(size) {}
  void* data_ = nullptr;
  int64_t size_ = 0;
};

// Values that are first put into buckets and then taken out, one bucket at a time: how more is
// sorted than memory holds. Several threads may put at once; what a bucket holds is in no order.
class BucketFiles {
 public:
  // Makes `folder`, which is gone with this object.
  static StatusOr<std::unique_ptr<BucketFiles>> Create(const std::string& folder, int64_t count);
  ~BucketFiles();

  int64_t count() const { return std::ssize(files_); }
  template <typename T>
  Status Put(int64_t bucket, std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    return PutBytes(bucket, values.data(), values.size_bytes());
  }
  template <typename T>
  StatusOr<std::vector<T>> Take(int64_t bucket) const {
    TESSERA_ASSIGN_OR_RETURN(const int64_t size, Size(bucket));
    std::vector<T> values(static_cast<size_t>(size) / sizeof(T));
    TESSERA_RETURN_IF_ERROR(TakeBytes(bucket, values.data(), values.size() * sizeof(T)));
    return values;
  }

 private:
  explicit BucketFiles(std::string folder) : folder_(std::move(folder)) {}
  std::string PathOf(int64_t bucket) const;
  Status PutBytes(int64_t bucket, const void* bytes, size_t size);
  StatusOr<int64_t> Size(int64_t bucket) const;
  Status TakeBytes(int64_t bucket, void* to, size_t size) const;

  const std::string folder_;
  std::vector<int> files_;
};

// A bucket for values by a hash, in the hashes' order.
inline int64_t BucketOfHash(uint64_t hash, int64_t count) {
  return static_cast<int64_t>(static_cast<unsigned __int128>(hash) * static_cast<uint64_t>(count) >>
                              64);
}

// How many buckets hold `bytes` in all: each a few MiB, which the threads hold at once.
int64_t BucketsFor(int64_t bytes);

// Values of one thread on their way into buckets.
template <typename T>
class BucketBuffer {
 public:
  explicit BucketBuffer(BucketFiles& files)
      : files_(files), buckets_(static_cast<size_t>(files.count())) {}

  Status Put(int64_t bucket, const T& value) {
    std::vector<T>& values = buckets_[static_cast<size_t>(bucket)];
    values.push_back(value);
    return values.size() * sizeof(T) < kBytes ? OkStatus() : Flush(bucket);
  }
  Status Flush() {
    for (int64_t i = 0; i < files_.count(); ++i) TESSERA_RETURN_IF_ERROR(Flush(i));
    return OkStatus();
  }

 private:
  static constexpr size_t kBytes = size_t{16} << 10;
  Status Flush(int64_t bucket) {
    std::vector<T>& values = buckets_[static_cast<size_t>(bucket)];
    if (values.empty()) return OkStatus();
    TESSERA_RETURN_IF_ERROR(files_.Put<T>(bucket, values));
    values.clear();
    return OkStatus();
  }

  BucketFiles& files_;
  std::vector<std::vector<T>> buckets_;
};

// ParallelFor over single indices whose first failure, by index, is returned.
Status ParallelTasks(int64_t count, const std::function<Status(int64_t)>& task);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_ENGINE_SCRATCH_H_
