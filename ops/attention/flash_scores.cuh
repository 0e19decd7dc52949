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
#include "ops/attention/flash_kernel.h"

namespace tessera::cuda {

constexpr float kLog2E = 1.4426950408889634f;

// Which keys the queries of row b see by causality, window and lengths, without memory: query i
// those from First(i) up to Limit(i), neither of which falls from one query to the next.
struct KeyRange {
  int least, most, to_limit, to_first;

  __device__ __forceinline__ KeyRange(const FlashArgs& args, int64_t b) {
    constexpr int64_t kFar = int64_t{1} << 30;  // behind every position
    const auto clamped = [=](int64_t x) { return static_cast<int>(max(-kFar, min(kFar, x))); };
    least = static_cast<int>(FlashKeyLimit(args, b, -2 * kFar));
    most = static_cast<int>(FlashKeyLimit(args, b, 2 * kFar));
    int64_t next = args.query_offset + 1;
    if (args.query_offsets != nullptr) next += args.query_offsets[b];
    to_limit = clamped(next);
    to_first = clamped(args.window > 0 ? next - args.window : -kFar);
  }
  __device__ __forceinline__ int First(int i) const { return max(0, i + to_first); }
  __device__ __forceinline__ int Limit(int i) const { return min(most, max(least, i + to_limit)); }
  // Whether all of `queries` from i on see all of `keys` from j on.
  __device__ __forceinline__ bool IsWhole(int i, int queries, int j, int keys) const {
    return j + keys <= Limit(i) && j >= First(i + queries - 1);
  }
  // The first query that sees key j, and the one after the last, if any does.
  __device__ __forceinline__ int FirstQuery(int j) const {
    if (j < least) return 0;
    return j < most ? max(0, j + 1 - to_limit) : 1 << 30;
  }
  __device__ __forceinline__ int64_t QueryLimit(int j) const { return int64_t{j} + 1 - to_first; }
};

// What masks say of a query: the keys that it sees, and of which document.
struct alignas(16) Query {
  int first, limit;
  int32_t document;
};
// And of a key: its index, behind every limit where padding hides it.
struct alignas(8) Key {
  int index;
  int32_t document;
};
__device__ __forceinline__ bool Sees(const Query& query, const Key& key) {
  return (key.index >= query.first) & (key.index < query.limit) &
         ((key.document == kEveryDocument) | (key.document == query.document));
}
__device__ __forceinline__ bool Sees(const Key& key, const Query& query) {
  return Sees(query, key);
}

// What they say of the query or key at `index`, which may lie behind the last.
template <typename Side, bool kGeneral>
__device__ __forceinline__ Side MasksOf(const FlashArgs& args, const KeyRange& range, int64_t b,
                                        int index) {
  const bool documents = kGeneral && args.key_document != nullptr;
  if constexpr (std::is_same_v<Side, Query>) {
    if (index >= args.q_len) return {0, 0, 0};
    return {range.First(index), range.Limit(index),
            documents ? args.query_document[b * args.q_len + index] : 0};
  } else {
    if (!kGeneral || index >= args.k_len) return {index, kEveryDocument};
    const int64_t at = b * args.k_len + index;
    const bool hidden = args.key_padding != nullptr && args.key_padding[at] == 0;
    return {hidden ? INT32_MAX : index, documents ? args.key_document[at] : kEveryDocument};
  }
}

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
