// SPDX-License-Identifier: Apache-2.0
// The tile product of gemm_kernel.h with AMX's tiles: eight registers of 16 rows of 64 bytes.
//
// 32 x 32 elements of C are four tiles of sums; a step of 32 indices of k loads two tiles of A (16
// rows x 32 numbers each) and two of B (16 pairs of k x 16 columns). Packed, A is [block of 32
// k][32 rows][32 k] and B [pair of k][32 columns], both with zeros up to 32 k.
//
// `Tiles` is the instructions (gemm_amx_isa.cc) or a model of them (gemm_amx_test.cc). Strides are
// in bytes:
//   Zero<t>(), Load<t>(from, stride), Store<t>(to, stride)
//   Dot<c, a, b>()                        c += a b, as TDPBF16PS adds up (gemm.h)
//   Finish(n, s, c, alpha, accumulate)    GemmKernels::finish_row
//
// On paper a step is four instructions of 16 cycles and four loads of 8 beside them: 1024 multiply-
// adds per cycle, while A (24 KiB per 32 rows) comes from L2 at 32 bytes per cycle and the 24 KiB
// of B stay in L1. Putting the sums into C costs about an eighth of that again at 384 indices of k.
// A few rows are tiles that hold zeros besides: their time is that of packing B, which reads about
// as fast as memory gives. The instructions have run on a model alone; nothing has been timed.
#ifndef TESSERA_OPS_MATMUL_GEMM_AMX_H_
#define TESSERA_OPS_MATMUL_GEMM_AMX_H_

#include <cstdint>

namespace tessera {

inline constexpr int64_t kAmxSide = 32;                    // rows and columns of C
inline constexpr int64_t kAmxPairs = 16;                   // pairs of k in a step
inline constexpr int64_t kAmxStep = kAmxSide * kAmxPairs;  // packed elements of a step

template <typename Tiles>
void AmxTile(int64_t depth, const float* a, const float* b, float* c, int64_t c_row_stride,
             float alpha, bool accumulate) {
  constexpr int64_t kRowOfA = kAmxPairs * 4, kRow = kAmxSide * 4, kHalf = kAmxSide / 2;
  Tiles::template Zero<0>();
  Tiles::template Zero<1>();
  Tiles::template Zero<2>();
  Tiles::template Zero<3>();
  for (const float* const end = a + depth * kAmxSide; a < end; a += kAmxStep, b += kAmxStep) {
    Tiles::template Load<6>(b, kRow);
    Tiles::template Load<4>(a, kRowOfA);
    Tiles::template Load<7>(b + kHalf, kRow);
    Tiles::template Dot<0, 4, 6>();
    Tiles::template Load<5>(a + kAmxStep / 2, kRowOfA);
    Tiles::template Dot<1, 4, 7>();
    Tiles::template Dot<2, 5, 6>();
    Tiles::template Dot<3, 5, 7>();
  }
  alignas(64) float sums[kAmxSide * kAmxSide];
  Tiles::template Store<0>(sums, kRow);
  Tiles::template Store<1>(sums + kHalf, kRow);
  Tiles::template Store<2>(sums + kHalf * kAmxSide, kRow);
  Tiles::template Store<3>(sums + kHalf * kAmxSide + kHalf, kRow);
  for (int64_t i = 0; i < kAmxSide; ++i) {
    Tiles::Finish(kAmxSide, sums + i * kAmxSide, c + i * c_row_stride, alpha, accumulate);
  }
}

}  // namespace tessera

#endif  // TESSERA_OPS_MATMUL_GEMM_AMX_H_
