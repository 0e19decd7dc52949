// SPDX-License-Identifier: Apache-2.0
#include "tests/inference/failing_memory.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace tessera {
namespace {

constinit std::atomic<int64_t> requests_so_far{0};
constinit std::atomic<int64_t> blocks{0};
constinit std::atomic<int64_t> armed_at{0};
constinit std::atomic<int64_t> first_failure{0};  // as requests_so_far counts; 0: none
constinit std::atomic<bool> all_after_fail{false};

bool Fails() {
  const int64_t number = requests_so_far.fetch_add(1, std::memory_order_relaxed) + 1;
  const int64_t first = first_failure.load(std::memory_order_relaxed);
  if (first == 0) return false;
  return number == first || (number > first && all_after_fail.load(std::memory_order_relaxed));
}

void* Obtain(size_t size, size_t alignment) {
  if (Fails()) return nullptr;
  blocks.fetch_add(1, std::memory_order_relaxed);
  if (alignment <= alignof(std::max_align_t)) return std::malloc(size == 0 ? 1 : size);
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void* ObtainOrThrow(size_t size, size_t alignment) {
  void* const memory = Obtain(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void GiveBack(void* memory) noexcept {
  if (memory == nullptr) return;
  blocks.fetch_sub(1, std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

void FailingMemory::Arm(const Failures& failures) {
  all_after_fail = failures.all_after;
  armed_at = requests_so_far.load();
  first_failure = failures.first == 0 ? 0 : armed_at + failures.first;
}

int64_t FailingMemory::Disarm() {
  first_failure = 0;
  return requests_so_far - armed_at;
}

int64_t FailingMemory::RequestsSoFar() { return requests_so_far; }
int64_t FailingMemory::Blocks() { return blocks; }

}  // namespace tessera

using tessera::GiveBack;
using tessera::Obtain;
using tessera::ObtainOrThrow;

void* operator new(size_t size) { return ObtainOrThrow(size, 1); }
void* operator new[](size_t size) { return ObtainOrThrow(size, 1); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return Obtain(size, 1); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return Obtain(size, 1); }
void* operator new(size_t size, std::align_val_t alignment) {
  return ObtainOrThrow(size, static_cast<size_t>(alignment));
}
void* operator new[](size_t size, std::align_val_t alignment) {
  return ObtainOrThrow(size, static_cast<size_t>(alignment));
}
void* operator new(size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return Obtain(size, static_cast<size_t>(alignment));
}
void* operator new[](size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return Obtain(size, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { GiveBack(memory); }
void operator delete[](void* memory) noexcept { GiveBack(memory); }
void operator delete(void* memory, size_t) noexcept { GiveBack(memory); }
void operator delete[](void* memory, size_t) noexcept { GiveBack(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { GiveBack(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { GiveBack(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { GiveBack(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { GiveBack(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { GiveBack(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { GiveBack(memory); }
void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
  GiveBack(memory);
}
void operator delete[](void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
  GiveBack(memory);
}
