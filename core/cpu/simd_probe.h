// SPDX-License-Identifier: Apache-2.0
// The functions and conversions of core/cpu/simd.h applied to arrays, one copy per instruction
// set, for simd_test.cc.
#ifndef TESSERA_CORE_CPU_SIMD_PROBE_H_
#define TESSERA_CORE_CPU_SIMD_PROBE_H_

#include <cstdint>

#include "core/cpu/every_isa.h"

namespace tessera {

struct SimdProbe {
  int64_t lanes;
  // y[i] = f(x[i]) for i < n.
  void (*exp)(const float* x, float* y, int64_t n);
  void (*log)(const float* x, float* y, int64_t n);
  void (*tanh)(const float* x, float* y, int64_t n);
  void (*erf)(const float* x, float* y, int64_t n);
  void (*sigmoid)(const float* x, float* y, int64_t n);
  // Conversions to and from the bits of bfloat16 and half.
  void (*to_bf16)(const float* x, uint16_t* y, int64_t n);
  void (*from_bf16)(const uint16_t* x, float* y, int64_t n);
  void (*to_f16)(const float* x, uint16_t* y, int64_t n);
  void (*from_f16)(const uint16_t* x, float* y, int64_t n);
  // x has `lanes` elements; the reductions of one vector: sum, maximum, minimum.
  void (*reduce)(const float* x, float* sum_max_min);
  // Per element: bits 0..4 are a<b, a<=b, a==b, a>b, a>=b; bit 5 IsNan(a). `lo` and `hi` are
  // Min(a, b) and Max(a, b), `fused` is Fma(a, b, a).
  void (*compare)(const float* a, const float* b, int32_t* bits, float* lo, float* hi, float* fused,
                  int64_t n);
  // bits[i] = RandomBits({key_hi, key_lo}, index + i) for i < n <= 96.
  void (*random)(uint64_t key_hi, uint64_t key_lo, uint64_t index, int64_t n, uint32_t* bits);
};

TESSERA_DECLARE_FOR_EVERY_ISA(extern const SimdProbe kSimdProbe;)

}  // namespace tessera

#endif  // TESSERA_CORE_CPU_SIMD_PROBE_H_
