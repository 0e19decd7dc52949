// SPDX-License-Identifier: Apache-2.0
// What every attention kernel asks of its arguments: which keys a query sees, the bias, dropout.
// Included by .cu files only.
#ifndef TESSERA_OPS_ATTENTION_ATTENTION_MASK_CUH_
#define TESSERA_OPS_ATTENTION_ATTENTION_MASK_CUH_

#include <cstdint>
#include <type_traits>

#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "core/cuda/random.cuh"
#include "ops/attention/drop_bits.h"
#include "ops/attention/flash_kernel.h"

namespace tessera::cuda {

// FlashKeyOffset is FlashOffset of these; positions are divided as 32 bits.
struct KeyPlace {
  int64_t row;
  int64_t time;
};
__device__ __forceinline__ KeyPlace PlaceOfKey(const FlashArgs& args, int64_t b, uint32_t j) {
  const FlashPages& pages = args.pages;
  if (pages.table == nullptr) return {b, j};
  const auto size = static_cast<uint32_t>(pages.page_size);
  const uint32_t page = j / size;
  return {pages.table[b * pages.pages_per_row + page], j - page * size};
}

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
    // A window without the causal mask ends as far behind the query's place as it begins before it.
    to_limit = clamped(args.causal || args.window == 0 ? next : next + (args.window - 1));
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

// By the masks beside the limit of a query's keys; i < q_len and j < k_len.
__device__ __forceinline__ bool MasksAllow(const FlashArgs& args, int64_t b, int64_t i, int64_t j) {
  if (j < FlashFirstKey(args, b, i)) return false;
  if (args.key_padding != nullptr && args.key_padding[b * args.k_len + j] == 0) return false;
  return args.key_document == nullptr || FlashSharesDocument(args, b, i, j);
}

template <typename W>
__device__ __forceinline__ W BiasAt(const FlashArgs& args, int64_t b, int64_t h, int64_t i,
                                    int64_t j) {
  if (args.bias == nullptr) return W(0);
  const FlashBiasStrides& s = args.bias_stride;
  const int64_t at = b * s.batch + h * s.head + i * s.query + j * s.key;
  switch (args.bias_dtype) {
    case DType::kBFloat16:
      return ToWide(static_cast<const BF16*>(args.bias)[at]);
    case DType::kFloat16:
      return ToWide(static_cast<const F16*>(args.bias)[at]);
    case DType::kFloat64:
      return static_cast<W>(static_cast<const double*>(args.bias)[at]);
    default:
      return static_cast<const float*>(args.bias)[at];
  }
}

__device__ __forceinline__ DeviceKey DropoutKey(const FlashArgs& args) {
  const FlashDropout& d = args.dropout;
  return Resolved({d.key_hi, d.key_lo, d.key_stored});
}

// What a probability that is kept is multiplied by.
template <typename W>
__device__ __forceinline__ W KeptScale(const FlashArgs& args) {
  return W(1) / (W(1) - static_cast<W>(args.dropout.p));
}

// Which probabilities of a tile dropout keeps, by all threads of a block: bit j % 16 of
// kept[(row * kKeys + j) / 16].
template <int kQueries, int kKeys>
__device__ __forceinline__ void ComputeKept(uint16_t* kept, const FlashArgs& args, int64_t b,
                                            int64_t h, int q_begin, int k_begin) {
  constexpr int kParts = kKeys / 16;
  const DeviceKey key = DropoutKey(args);
  for (int c = threadIdx.x; c < kQueries * kParts; c += blockDim.x) {
    const uint64_t first = FlashDropoutIndex(args, b, h, q_begin + c / kParts) +
                           static_cast<uint64_t>(k_begin + c % kParts * 16);
    kept[c] =
        static_cast<uint16_t>(KeptBits16(key.hi, key.lo, first, args.dropout.p * 16777216.0f));
  }
}
template <int kKeys>
__device__ __forceinline__ bool IsKept(const uint16_t* kept, unsigned row, unsigned key) {
  return (kept[row * (kKeys / 16) + key / 16] >> (key % 16) & 1) != 0;
}

}  // namespace tessera::cuda

#endif  // TESSERA_OPS_ATTENTION_ATTENTION_MASK_CUH_
