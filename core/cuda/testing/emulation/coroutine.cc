// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/testing/emulation/coroutine.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

// Saves what a called function must keep on the stack, and continues where the other stack left.
extern "C" void tessera_switch_stack(void** save, void* to);
asm(R"(
.text
.globl tessera_switch_stack
.type tessera_switch_stack, @function
tessera_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tessera_switch_stack, .-tessera_switch_stack
)");

namespace tessera::cuda::emulation {
namespace {

constexpr size_t kGuard = 4096;
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kStack = 1 << 20;
#else
constexpr size_t kStack = 256 << 10;
#endif

Coroutine* entered = nullptr;

}  // namespace

Coroutine::Coroutine(void (*body)(void*), void* argument) : body_(body), argument_(argument) {
  void* memory = mmap(nullptr, kGuard + kStack, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, kGuard, PROT_NONE) != 0) {
    std::perror("emulated GPU: stacks of threads");
    std::abort();
  }
  memory_ = static_cast<unsigned char*>(memory);
  // As if Begin had been called and left: a return address for it (8 below a multiple of 16, as a
  // call leaves the stack), Begin itself, and six registers.
  auto** top = reinterpret_cast<void**>(memory_ + kGuard + kStack);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(&Begin);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  inside_ = top;
}

Coroutine::~Coroutine() { munmap(memory_, kGuard + kStack); }

void Coroutine::Begin() {
  Coroutine* self = entered;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &self->outer_bottom_, &self->outer_size_);
#endif
  self->body_(self->argument_);
  std::abort();
}

void Coroutine::Enter() {
  entered = this;
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, memory_ + kGuard, kStack);
#endif
  tessera_switch_stack(&outside_, inside_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

void Coroutine::Leave() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&inner_fake_, outer_bottom_, outer_size_);
#endif
  tessera_switch_stack(&inside_, outside_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(inner_fake_, &outer_bottom_, &outer_size_);
#endif
}

}  // namespace tessera::cuda::emulation
