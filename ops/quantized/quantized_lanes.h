// SPDX-License-Identifier: Apache-2.0
// What the kernels of rows of integers ask of an instruction set, beside core/cpu/simd.h.
//
// For quantized_panel.h and quantized_products.h, which quantized_isa.cc compiles once per
// instruction set. Everything has internal linkage, so that no copy can be merged with another's.
//
//   kMostRows    the rows of x that a panel is multiplied by at a time: registers hold their sums
//   ZeroOf       by how much the integers of weights are too large, which makes them unsigned
//                where Dot needs that
//   Dot          from + the sums of the products of four neighbours; exact
//   DotOfParts   the same for numbers in two parts, summed over the vectors: upper parts count
//                kQuantUpper times
//   Bytes        the bytes of VectorColumns columns of row `p` from column `begin` on
//   Sixteens     16 bytes at p, p + stride, ...
//   WordsAt      the four bytes at p + i * stride
//   HalvesAt     the float16 numbers at p + i * stride
//   HalvesOf     the lower 16 bits of lanes as float16
//   SumQuarters  s[q], lane i: the sum of the four lanes of s[i]'s q-th run of four
//   Run          the bytes that hold a field of a vector's columns, for fields in runs of 32 and 64
//                (at p), and of 16 (each 16 bytes serve 32 columns; the next are at p + stride)
//   ShiftEach    shifts each lane right by a number of its own; by one number in the baseline
//   SingleBits   one bit per column as a byte: those of 32 columns at p (fewer lanes: from column c
//                on), of the next 32 at p + stride
//   Iq4          kIq4Numbers of bytes, larger by ZeroOf
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
