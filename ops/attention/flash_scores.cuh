// SPDX-License-Identifier: Apache-2.0
// How the flash kernels make scores of products: which keys a query sees, and the bias. Included by
// flash_cuda.cu only.
//
// Most tiles of scores lie within what all of their queries see (KeyRange::IsWhole), and are left
// as they are, unless there is more than the ranges of keys: kGeneral, with padding, documents, a
// bias, or a scale that is not positive. Then what is asked of each row and column of a tile
// (Query, Key) is loaded once.
#ifndef TESSERA_OPS_ATTENTION_FLASH_SCORES_CUH_
#define TESSERA_OPS_ATTENTION_FLASH_SCORES_CUH_

#include <cstdint>
#include <type_traits>

#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "ops/attention/attention_mask.cuh"

namespace tessera::cuda {

constexpr float kLog2E = 1.4426950408889634f;

// Calls f(column, score of the upper row, of the lower row) for what a lane has of a warp's 16
// rows.
template <int kColumnTiles, typename F>
__device__ __forceinline__ void EachColumn(float (&s)[kColumnTiles][4], F f) {
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) f(n * 8 + odd, s[n][odd], s[n][odd + 2]);
  }
}

// Scores that are not -inf += the bias, times log2(e). `bias` is that of s[0][0].
template <int kColumnTiles, typename B>
__device__ __forceinline__ void AddBias(float (&s)[kColumnTiles][4], const B* bias,
                                        int64_t row_stride, int64_t column_stride) {
  const B* at = bias;
  EachColumn(s, [&](int column, float& upper, float& lower) {
    if (upper != -INFINITY) upper = fmaf(ToWide(at[0]), kLog2E, upper);
    if (lower != -INFINITY) lower = fmaf(ToWide(at[8 * row_stride]), kLog2E, lower);
    at += column % 2 == 0 ? column_stride : 7 * column_stride;
  });
}

// Turns products into what FactorOfScores makes exponents, base 2: scores with kGeneral, and -inf
// where the query does not see the key. s[0][0] is the product of query i and key j, `rows` are of
// a lane's two rows, `columns`, read with kGeneral only, of those from column 0 on.
template <bool kGeneral, int kColumnTiles, typename Row, typename Column>
__device__ __forceinline__ void ScoreProducts(float (&s)[kColumnTiles][4], const FlashArgs& args,
                                              const KeyRange& range, int64_t b, int64_t h, int i,
                                              int j, const Row (&rows)[2], const Column* columns) {
  constexpr bool kOfKeys = std::is_same_v<Row, Key>;
  const float scale = kGeneral ? static_cast<float>(args.scale) * kLog2E : 1.0f;
  EachColumn(s, [&](int c, float& upper, float& lower) {
    const Column column =
        kGeneral ? columns[c] : MasksOf<Column, kGeneral>(args, range, b, (kOfKeys ? i : j) + c);
    upper = Sees(rows[0], column) ? upper * scale : -INFINITY;
    lower = Sees(rows[1], column) ? lower * scale : -INFINITY;
  });
  if (!kGeneral || args.bias == nullptr) return;
  const FlashBiasStrides& stride = args.bias_stride;
  const int64_t first = b * stride.batch + h * stride.head + i * stride.query + j * stride.key;
  const int64_t row_stride = kOfKeys ? stride.key : stride.query;
  const int64_t column_stride = kOfKeys ? stride.query : stride.key;
  switch (args.bias_dtype) {
    case DType::kBFloat16:
      return AddBias(s, static_cast<const BF16*>(args.bias) + first, row_stride, column_stride);
    case DType::kFloat16:
      return AddBias(s, static_cast<const F16*>(args.bias) + first, row_stride, column_stride);
    default:
      return AddBias(s, static_cast<const float*>(args.bias) + first, row_stride, column_stride);
  }
}
template <bool kGeneral>
__device__ __forceinline__ float FactorOfScores(const FlashArgs& args) {
  return kGeneral ? 1.0f : static_cast<float>(args.scale) * kLog2E;
}

}  // namespace tessera::cuda

#endif  // TESSERA_OPS_ATTENTION_FLASH_SCORES_CUH_
