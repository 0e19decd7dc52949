// SPDX-License-Identifier: Apache-2.0
// The register that says how a thread computes with floating-point numbers.
//
//   const FloatControlWord before = FloatControl();
//   SetFloatControl(before | kFlushSubnormals);
//   ...                                     // calls of kernels alone: no compiler knows of it
//   SetFloatControl(before);
#ifndef TESSERA_CORE_CPU_FLOAT_CONTROL_H_
#define TESSERA_CORE_CPU_FLOAT_CONTROL_H_

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace tessera {

#if defined(__x86_64__)
using FloatControlWord = unsigned;
inline FloatControlWord FloatControl() { return _mm_getcsr(); }
inline void SetFloatControl(FloatControlWord word) { _mm_setcsr(word); }
#elif defined(__aarch64__)
using FloatControlWord = uint64_t;
inline FloatControlWord FloatControl() {
  FloatControlWord word;
  __asm__ volatile("mrs %0, fpcr" : "=r"(word));
  return word;
}
inline void SetFloatControl(FloatControlWord word) {
  __asm__ volatile("msr fpcr, %0" : : "r"(word) : "memory");
}
#endif

// Operands and results below the normal numbers count as zeros of their sign. x86-64 judges a
// result after rounding, ARM64 before: one that rounds up to the smallest normal number is a zero
// there.
#if defined(__x86_64__)
inline constexpr FloatControlWord kFlushSubnormals = 0x8040;  // results, operands
#elif defined(__aarch64__)
inline constexpr FloatControlWord kFlushSubnormals = 1u << 24;  // FZ: both
#endif

}  // namespace tessera

#endif  // TESSERA_CORE_CPU_FLOAT_CONTROL_H_
