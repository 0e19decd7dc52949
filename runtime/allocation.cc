// SPDX-License-Identifier: Apache-2.0
// operator new and delete of the library: hidden in it (exports.map), so that a host's stay its
// own. All memory comes from here, that of tensors included (core/allocator.cc).
#include <cstdint>
#include <cstdlib>
#include <new>

#include "runtime/process.h"

namespace {

// Stands before every block: a block is released by the allocator that it came from.
struct Header {
  const tsr_allocator* allocator;  // nullptr: the C library
  void* memory;                    // as the allocator gave it
};
static_assert(sizeof(Header) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);

void* Allocate(size_t bytes, size_t alignment) noexcept {
  if (alignment < sizeof(Header)) alignment = sizeof(Header);
  if (bytes > SIZE_MAX - 2 * alignment) return nullptr;
  // The header takes as much as keeps the block aligned; whole multiples are what aligned_alloc
  // wants.
  const size_t total = alignment + (bytes + alignment - 1) / alignment * alignment;
  const tsr_allocator* const host = tessera::runtime::HostAllocator();
  void* memory = nullptr;
  if (host != nullptr) {
    memory = host->allocate(host->user, total, alignment);
  } else if (alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__) {
    memory = std::malloc(total);
  } else {
    memory = std::aligned_alloc(alignment, total);
  }
  if (memory == nullptr) return nullptr;
  auto* const block = static_cast<unsigned char*>(memory) + alignment;
  new (block - sizeof(Header)) Header{host, memory};
  return block;
}

void* AllocateOrThrow(size_t bytes, size_t alignment) {
  void* const block = Allocate(bytes, alignment);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

void Release(void* block) noexcept {
  if (block == nullptr) return;
  const Header header =
      *reinterpret_cast<Header*>(static_cast<unsigned char*>(block) - sizeof(Header));
  if (header.allocator != nullptr) {
    header.allocator->release(header.allocator->user, header.memory);
  } else {
    std::free(header.memory);
  }
}

constexpr size_t kUsual = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

}  // namespace

void* operator new(size_t bytes) { return AllocateOrThrow(bytes, kUsual); }
void* operator new[](size_t bytes) { return AllocateOrThrow(bytes, kUsual); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return Allocate(bytes, kUsual); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return Allocate(bytes, kUsual);
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return AllocateOrThrow(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return AllocateOrThrow(bytes, static_cast<size_t>(alignment));
}
void* operator new(size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return Allocate(bytes, static_cast<size_t>(alignment));
}

void operator delete(void* block) noexcept { Release(block); }
void operator delete[](void* block) noexcept { Release(block); }
void operator delete(void* block, size_t) noexcept { Release(block); }
void operator delete[](void* block, size_t) noexcept { Release(block); }
void operator delete(void* block, const std::nothrow_t&) noexcept { Release(block); }
void operator delete[](void* block, const std::nothrow_t&) noexcept { Release(block); }
void operator delete(void* block, std::align_val_t) noexcept { Release(block); }
void operator delete[](void* block, std::align_val_t) noexcept { Release(block); }
void operator delete(void* block, size_t, std::align_val_t) noexcept { Release(block); }
void operator delete[](void* block, size_t, std::align_val_t) noexcept { Release(block); }
void operator delete(void* block, std::align_val_t, const std::nothrow_t&) noexcept {
  Release(block);
}
void operator delete[](void* block, std::align_val_t, const std::nothrow_t&) noexcept {
  Release(block);
}
