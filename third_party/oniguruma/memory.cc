// SPDX-License-Identifier: Apache-2.0
// Oniguruma takes its memory from where everything else does, so that a host's allocator serves it
// (tsr_configure), and a request that fails is seen. It reports one as ONIGERR_MEMORY.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>

namespace {

// The size, which realloc needs, before the bytes.
constexpr size_t kBefore = alignof(std::max_align_t);
static_assert(kBefore >= sizeof(size_t));

void* Obtain(size_t size) {
  void* const memory = ::operator new(size + kBefore, std::nothrow);
  if (memory == nullptr) return nullptr;
  std::memcpy(memory, &size, sizeof(size));
  return static_cast<std::byte*>(memory) + kBefore;
}

void* BeginOf(void* memory) { return static_cast<std::byte*>(memory) - kBefore; }

size_t SizeOf(void* memory) {
  size_t size = 0;
  std::memcpy(&size, BeginOf(memory), sizeof(size));
  return size;
}

}  // namespace

extern "C" {

void* tessera_oniguruma_malloc(size_t size) { return Obtain(size); }

void* tessera_oniguruma_calloc(size_t count, size_t size) {
  void* const memory = Obtain(count * size);
  if (memory != nullptr) std::memset(memory, 0, count * size);
  return memory;
}

void tessera_oniguruma_free(void* memory) {
  if (memory != nullptr) ::operator delete(BeginOf(memory));
}

void* tessera_oniguruma_realloc(void* memory, size_t size) {
  if (memory == nullptr) return Obtain(size);
  void* const larger = Obtain(size);
  if (larger == nullptr) return nullptr;
  std::memcpy(larger, memory, std::min(size, SizeOf(memory)));
  tessera_oniguruma_free(memory);
  return larger;
}

}  // extern "C"
