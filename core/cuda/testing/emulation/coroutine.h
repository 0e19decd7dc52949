// SPDX-License-Identifier: Apache-2.0
// A stack of its own to run a function on, left and entered again. x86-64.
//
//   Coroutine c(Body, argument);   // Body never returns; it calls c.Leave()
//   c.Enter();                     // runs Body until it leaves
#ifndef TESSERA_CORE_CUDA_TESTING_EMULATION_COROUTINE_H_
#define TESSERA_CORE_CUDA_TESTING_EMULATION_COROUTINE_H_

#include <cstddef>
#include <memory>

namespace tessera::cuda::emulation {

class Coroutine {
 public:
  Coroutine(void (*body)(void*), void* argument);
  ~Coroutine();
  Coroutine(const Coroutine&) = delete;
  Coroutine& operator=(const Coroutine&) = delete;

  void Enter();
  void Leave();

 private:
  static void Begin();

  void (*body_)(void*);
  void* argument_;
  unsigned char* memory_;
  void* inside_ = nullptr;  // stack pointers of the two sides, of the one that does not run
  void* outside_ = nullptr;
  // What AddressSanitizer wants to know of the stack that entered.
  const void* outer_bottom_ = nullptr;
  size_t outer_size_ = 0;
  void* inner_fake_ = nullptr;
};

}  // namespace tessera::cuda::emulation

#endif  // TESSERA_CORE_CUDA_TESTING_EMULATION_COROUTINE_H_
