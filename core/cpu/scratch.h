// Working memory of a kernel that outlives the call: kept per thread, grown when needed.
//
//   thread_local ThreadScratch packed;
//   float* p = packed.Get<float>(count);   // uninitialised; invalidates what Get gave before
//
// Blocks are aligned to 64 bytes, or to huge pages (and offered to them) from 2 MiB on, and freed
// when the thread ends.
#ifndef TESSERA_CORE_CPU_SCRATCH_H_
#define TESSERA_CORE_CPU_SCRATCH_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace tessera {

class ThreadScratch {
 public:
  ThreadScratch() = default;
  ThreadScratch(const ThreadScratch&) = delete;
  ThreadScratch& operator=(const ThreadScratch&) = delete;
  ~ThreadScratch() { std::free(data_); }

  // Throws std::bad_alloc when there is no room.
  template <typename E>
  E* Get(int64_t count) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(E);
    if (bytes > bytes_) Grow(bytes);
    return static_cast<E*>(data_);
  }

 private:
  void Grow(size_t bytes) {
    constexpr size_t kHugePage = size_t{2} << 20;
    const size_t alignment = bytes >= kHugePage ? kHugePage : 64;
    const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    std::free(data_);
    bytes_ = 0;
    data_ = std::aligned_alloc(alignment, rounded);
    if (data_ == nullptr) throw std::bad_alloc();
    if (alignment == kHugePage) madvise(data_, rounded, MADV_HUGEPAGE);
    bytes_ = rounded;
  }

  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_CORE_CPU_SCRATCH_H_
