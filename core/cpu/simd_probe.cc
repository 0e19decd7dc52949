// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/simd_probe.h"

#include "core/cpu/philox_simd.h"
#include "core/cpu/simd.h"

namespace tessera::TESSERA_ISA {
namespace {

template <typename From, typename To, typename F>
TESSERA_SIMD void Map(const From* x, To* y, int64_t n, F f) {
  ForEachVector(
      n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
        if (lanes == kLanes) {
          Store(y + i, f(Load(x + i)));
        } else {
          StoreN(y + i, f(LoadN(x + i, lanes)), lanes);
        }
      });
}

#define TESSERA_PROBE_(Name)                                                     \
  void Name##Array(const float* x, float* y, int64_t n) {                        \
    Map(                                                                         \
        x, y, n, [](VecF v) __attribute__((always_inline)) { return Name(v); }); \
  }
TESSERA_PROBE_(Exp)
TESSERA_PROBE_(Log)
TESSERA_PROBE_(Tanh)
TESSERA_PROBE_(Erf)
TESSERA_PROBE_(Sigmoid)
#undef TESSERA_PROBE_

#define TESSERA_PROBE_(To, From, Element)                         \
  void To(const float* x, uint16_t* y, int64_t n) {               \
    Map(                                                          \
        x, reinterpret_cast<Element*>(y), n,                      \
        [](VecF v) __attribute__((always_inline)) { return v; }); \
  }                                                               \
  void From(const uint16_t* x, float* y, int64_t n) {             \
    Map(                                                          \
        reinterpret_cast<const Element*>(x), y, n,                \
        [](VecF v) __attribute__((always_inline)) { return v; }); \
  }
TESSERA_PROBE_(ToBf16Array, FromBf16Array, Bf16)
TESSERA_PROBE_(ToF16Array, FromF16Array, F16)
#undef TESSERA_PROBE_

void ReduceVector(const float* x, float* sum_max_min) {
  const VecF v = Load(x);
  sum_max_min[0] = ReduceAdd(v);
  sum_max_min[1] = ReduceMax(v);
  sum_max_min[2] = ReduceMin(v);
}

void CompareArrays(const float* a, const float* b, int32_t* bits, float* lo, float* hi,
                   float* fused, int64_t n) {
  ForEachVector(
      n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
        const VecF va = LoadN(a + i, lanes);
        const VecF vb = LoadN(b + i, lanes);
        VecI r = Select(va < vb, SetI(1), SetI(0));
        r = r | Select(va <= vb, SetI(2), SetI(0));
        r = r | Select(va == vb, SetI(4), SetI(0));
        r = r | Select(va > vb, SetI(8), SetI(0));
        r = r | Select(va >= vb, SetI(16), SetI(0));
        r = r | Select(IsNan(va), SetI(32), SetI(0));
        StoreN(bits + i, r, lanes);
        StoreN(lo + i, Min(va, vb), lanes);
        StoreN(hi + i, Max(va, vb), lanes);
        StoreN(fused + i, Fma(va, vb, va), lanes);
      });
}

void RandomArray(uint64_t key_hi, uint64_t key_lo, uint64_t index, int64_t n, uint32_t* bits) {
  uint32_t words[RandomRangeWords(96)];
  const uint32_t* range = RandomRange(key_hi, key_lo, index, n, words);
  for (int64_t i = 0; i < n; ++i) bits[i] = range[i];
}

}  // namespace

const SimdProbe kSimdProbe = {
    kLanes,        ExpArray,   LogArray,     TanhArray,    ErfArray,      SigmoidArray, ToBf16Array,
    FromBf16Array, ToF16Array, FromF16Array, ReduceVector, CompareArrays, RandomArray,
};

}  // namespace tessera::TESSERA_ISA
