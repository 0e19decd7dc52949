// SPDX-License-Identifier: Apache-2.0
#include "data/chat/stack_room.h"

#include <pthread.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tessera::data::chat {
namespace {

constexpr size_t kReserve = 128 << 10;

// The lowest address that recursion may reach; 0 where the system does not tell.
uintptr_t LowestAddress() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 0;
  void* begin = nullptr;
  size_t size = 0;
  const bool known = pthread_attr_getstack(&attributes, &begin, &size) == 0;
  pthread_attr_destroy(&attributes);
  return known ? reinterpret_cast<uintptr_t>(begin) + std::min(kReserve, size / 2) : 0;
}

}  // namespace

bool StackHasRoom() {
  thread_local const uintptr_t lowest = LowestAddress();
  // Not a variable's address: the address sanitizer may keep variables elsewhere.
  return reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) > lowest;
}

}  // namespace tessera::data::chat
