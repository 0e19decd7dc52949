// SPDX-License-Identifier: Apache-2.0
// Working memory of a kernel that outlives the call: kept per thread, grown when needed.
//
//   constinit thread_local ThreadScratch packed;
//   float* p = packed.Get<float>(count);   // uninitialised; invalidates what Get gave before
//
// Blocks are aligned to 64 bytes, or to huge pages (and offered to them) from 2 MiB on, and freed
// when the thread ends. There is no destructor, so that what a program computes in its own static
// destructors works: those of the main thread's thread_local objects have run by then.
#ifndef TESSERA_CORE_CPU_SCRATCH_H_
#define TESSERA_CORE_CPU_SCRATCH_H_

#include <cstddef>
#include <cstdint>

namespace tessera {

class ThreadScratch {
 public:
  constexpr ThreadScratch() = default;
  ThreadScratch(const ThreadScratch&) = delete;
  ThreadScratch& operator=(const ThreadScratch&) = delete;

  // Throws std::bad_alloc when there is no room.
  template <typename E>
  E* Get(int64_t count) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(E);
    if (bytes > bytes_) Grow(bytes);
    return static_cast<E*>(data_);
  }

 private:
  void Grow(size_t bytes);
  void Free();
  // What a thread does at its end, with the first of its list.
  static void FreeAll(void* first);

  void* data_ = nullptr;
  size_t bytes_ = 0;
  bool listed_ = false;  // among those that are freed when the thread ends
  ThreadScratch* following_ = nullptr;
};

}  // namespace tessera

#endif  // TESSERA_CORE_CPU_SCRATCH_H_
