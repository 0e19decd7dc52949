// SPDX-License-Identifier: Apache-2.0
// What the kernels of rows of integers ask of an instruction set, beside core/cpu/simd.h.
//
// For quantized_isa.cc, which is compiled once per instruction set. Everything has internal
// linkage, so that no copy can be merged with another's.
//
// ZeroOf: what the integers of weights are too large by, which is what makes them unsigned where
// that is needed. Dot: from + the products of four neighbours, exact. DotOfParts: those of vectors
// with numbers in two parts, upper ones kQuantUpper times, added up. HalvesAt: the float16 numbers
// at p + i * stride. Bytes: those of VectorColumns of a row `p` from column `begin` on, as they
// stand there. Sixteens: 16 bytes at p, p + stride, ... SumQuarters: lane i of s[q] becomes the sum
// of the four lanes of the q-th quarter (of so many as there are) of what s[i] was.
//
// WordsAt: the four bytes at p + i * stride. HalvesOf: the lower 16 bits of lanes as float16. Run:
// the bytes that have a field of a vector's columns, whose first 16 are at p, for fields of runs of
// 16 (each 16 bytes serve 32 columns, the next ones are at p + stride), 32 and 64. ShiftEach: each
// lane of its own, which is the same in the baseline. SingleBits: bits at p, for 32 columns from c
// on and those at p + stride, as bytes. Iq4: kIq4Numbers of bytes, larger by ZeroOf.
//
// kMostRows: rows of x that are multiplied by a panel at a time, as many as registers hold sums of.
#ifndef TESSERA_OPS_QUANTIZED_QUANTIZED_LANES_H_
#define TESSERA_OPS_QUANTIZED_QUANTIZED_LANES_H_

#include "core/cpu/simd.h"
#include "ops/quantized/quantized_rows.h"

#if defined(TESSERA_ISA_AVX512VNNI)
#include "ops/quantized/quantized_lanes_avx512.h"
#elif defined(TESSERA_ISA_AVX2)
#include "ops/quantized/quantized_lanes_avx2.h"
#else
#include "ops/quantized/quantized_lanes_four.h"
#endif

namespace tessera::TESSERA_ISA {
namespace {

// Sums of upper parts as those of whole numbers, to which the lower parts' are added.
TESSERA_SIMD VecI Raised(VecI upper) {
  static_assert(kQuantUpper == 255);
  return ShiftLeft<8>(upper) - upper;
}

#if !defined(TESSERA_ISA_AVX2)
template <QuantType kType, int kCount>
TESSERA_SIMD VecI DotOfParts(const VecI (&w)[kCount], const VecI (&upper)[kCount],
                             const VecI (&lower)[kCount]) {
  VecI dot = SetI(0);
#pragma GCC unroll 2
  for (int i = 0; i < kCount; ++i) dot = Dot<kType>(dot, w[i], upper[i]);
  dot = Raised(dot);
#pragma GCC unroll 2
  for (int i = 0; i < kCount; ++i) dot = Dot<kType>(dot, w[i], lower[i]);
  return dot;
}
#endif

}  // namespace
}  // namespace tessera::TESSERA_ISA

#endif  // TESSERA_OPS_QUANTIZED_QUANTIZED_LANES_H_
