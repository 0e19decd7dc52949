// SPDX-License-Identifier: Apache-2.0
#include "third_party/oniguruma/memory.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>

namespace tessera {

struct alignas(std::max_align_t) OnigurumaBlock {
  size_t size = 0;
  // In the list of a scope; `before` is what points to it, nullptr of a block in none.
  OnigurumaBlock** before = nullptr;
  OnigurumaBlock* next = nullptr;
};

namespace {

using Block = OnigurumaBlock;

// The list of the scope that this thread is in.
thread_local Block** scope = nullptr;

void Link(Block* block) {
  if (scope == nullptr) return;
  block->before = scope;
  block->next = *scope;
  if (block->next != nullptr) block->next->before = &block->next;
  *scope = block;
}

void Unlink(Block* block) {
  if (block->before == nullptr) return;
  *block->before = block->next;
  if (block->next != nullptr) block->next->before = block->before;
  block->before = nullptr;
  block->next = nullptr;
}

void* Obtain(size_t size) {
  auto* const block = new (::operator new(sizeof(Block) + size)) Block{.size = size};
  Link(block);
  return block + 1;
}

Block* BlockOf(void* memory) { return static_cast<Block*>(memory) - 1; }

void GiveBack(Block* block) {
  Unlink(block);
  ::operator delete(block);
}

}  // namespace

OnigurumaMemoryScope::OnigurumaMemoryScope() : outer_(scope) { scope = &first_; }

OnigurumaMemoryScope::~OnigurumaMemoryScope() {
  while (first_ != nullptr) GiveBack(first_);
  scope = outer_;
}

void OnigurumaMemoryScope::Keep() {
  while (first_ != nullptr) Unlink(first_);
}

}  // namespace tessera

// By the names that config.h gives malloc and the others.
extern "C" {

void* tessera_oniguruma_malloc(size_t size) { return tessera::Obtain(size); }

void* tessera_oniguruma_calloc(size_t count, size_t size) {
  void* const memory = tessera::Obtain(count * size);
  std::memset(memory, 0, count * size);
  return memory;
}

void tessera_oniguruma_free(void* memory) {
  if (memory != nullptr) tessera::GiveBack(tessera::BlockOf(memory));
}

void* tessera_oniguruma_realloc(void* memory, size_t size) {
  void* const larger = tessera::Obtain(size);
  if (memory == nullptr) return larger;
  std::memcpy(larger, memory, std::min(size, tessera::BlockOf(memory)->size));
  tessera_oniguruma_free(memory);
  return larger;
}

}  // extern "C"
