// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/scratch.h"

#include <pthread.h>
#include <sys/mman.h>

#include <new>

namespace tessera {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

std::align_val_t AlignmentOf(size_t bytes) {
  return std::align_val_t(bytes >= kHugePage ? kHugePage : 64);
}

pthread_key_t MakeKey(void (*at_thread_end)(void*)) {
  pthread_key_t key;
  if (pthread_key_create(&key, at_thread_end) != 0) throw std::bad_alloc();
  return key;
}

constinit thread_local ThreadScratch* first_of_thread = nullptr;

}  // namespace

void ThreadScratch::Grow(size_t bytes) {
  static const pthread_key_t key = MakeKey(FreeAll);
  if (!listed_) {
    if (pthread_setspecific(key, this) != 0) throw std::bad_alloc();
    following_ = first_of_thread;
    first_of_thread = this;
    listed_ = true;
  }
  Free();
  const auto alignment = static_cast<size_t>(AlignmentOf(bytes));
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  data_ = ::operator new(rounded, std::align_val_t(alignment));
  bytes_ = rounded;
  if (alignment == kHugePage) madvise(data_, rounded, MADV_HUGEPAGE);
}

void ThreadScratch::Free() {
  if (data_ != nullptr) ::operator delete(data_, AlignmentOf(bytes_));
  data_ = nullptr;
  bytes_ = 0;
}

void ThreadScratch::FreeAll(void* first) {
  first_of_thread = nullptr;
  for (auto* scratch = static_cast<ThreadScratch*>(first); scratch != nullptr;) {
    scratch->Free();
    scratch->listed_ = false;
    scratch = scratch->following_;
  }
}

}  // namespace tessera
