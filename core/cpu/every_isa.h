// SPDX-License-Identifier: Apache-2.0
// The names of a kernel's versions for the instruction sets that every kernel is compiled for.
//
//   TESSERA_DECLARE_FOR_EVERY_ISA(void Softmax(const SoftmaxArgs&);)    // in the kernel's header
//   constexpr IsaTable<void(const SoftmaxArgs&)> kSoftmax{TESSERA_FOR_EVERY_ISA(Softmax)};
//
// They are baseline, avx2 and avx512 on x86-64, and neon on ARM64, the same ones as in
// tessera_isa_library's default and in kKernelIsas (core/cpu_isa.h). Macros alone, for sources of
// any instruction set.
#ifndef TESSERA_CORE_CPU_EVERY_ISA_H_
#define TESSERA_CORE_CPU_EVERY_ISA_H_

#if defined(__aarch64__)

#define TESSERA_DECLARE_FOR_EVERY_ISA(...) \
  namespace neon {                         \
  __VA_ARGS__                              \
  }
#define TESSERA_FOR_EVERY_ISA(...) &neon::__VA_ARGS__

#else

#define TESSERA_DECLARE_FOR_EVERY_ISA(...) \
  namespace baseline {                     \
  __VA_ARGS__                              \
  }                                        \
  namespace avx2 {                         \
  __VA_ARGS__                              \
  }                                        \
  namespace avx512 {                       \
  __VA_ARGS__                              \
  }
#define TESSERA_FOR_EVERY_ISA(...) &baseline::__VA_ARGS__, &avx2::__VA_ARGS__, &avx512::__VA_ARGS__

#endif

#endif  // TESSERA_CORE_CPU_EVERY_ISA_H_
