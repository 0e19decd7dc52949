// SPDX-License-Identifier: Apache-2.0
// Attention of few queries over many keys, as decoding has them: in float32 without tensor cores,
// since reading keys and values is what takes the time. They are read once for all the queries and
// heads that share them, by 16 bytes, and every thread asks for 16 of these before it needs any.
//
// The keys are split into chunks of kDecodeChunk by their index, and a block takes one chunk, for
// one key/value head of one row of the batch ("Flash-Decoding", T. Dao, D. Haziza, F. Massa, G.
// Sizov 2023). Where there is more than one, each leaves its part of the softmax, and a second
// kernel puts a query's together in order. What a query gets therefore depends on its keys alone,
// neither on other rows nor on how many keys the longest of them has.
//
// Letters: R rows of a block (queries, of each of the heads that share keys), K keys of a chunk, D
// features (head_dim, padded with zeros to kD).
#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "core/cuda/launch.h"
#include "core/cuda/reduce.cuh"
#include "core/cuda/tensor_core.cuh"
#include "ops/attention/attention_cuda.h"
#include "ops/attention/attention_mask.cuh"

namespace tessera::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreadsOfBlock = 32 * kWarps;  // one per key, where keys are looked up
constexpr int kKeysOfWarp = kDecodeChunk / kWarps;
constexpr int kWordsAhead = 16;  // of 16 bytes, that a thread has asked for
static_assert(kDecodeChunk == kThreadsOfBlock);

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

// Of scores times log2(e): the greatest, and the sum of 2^(score - max).
struct alignas(8) MaxAndSum {
  float max;
  float sum;
};

// What chunks leave, [B, H, Tq, chunks]: the softmax's sums, and those of values [.., D]. Both are
// null where one chunk has all keys.
struct Partials {
  float* o = nullptr;
  MaxAndSum* of_scores = nullptr;
  int chunks = 1;
};

// 0 where no key is seen, so that 2^(-inf - base) is 0 and no NaN.
__device__ __forceinline__ float BaseOf(float max) { return max == -INFINITY ? 0.0f : max; }
__device__ __forceinline__ float InverseOf(float sum) { return sum == 0.0f ? 0.0f : 1.0f / sum; }
__device__ __forceinline__ float LogSumExp(const MaxAndSum& s) {
  return s.sum == 0.0f ? -INFINITY : fmaf(s.max, kLn2, logf(s.sum));
}

using Word = Vec<uint32_t, 4>;  // 16 bytes of elements

// Feature d and what follows of the row that begins at `at`; zeros, and nothing is read, where
// there is no row (-1) or no feature.
template <typename T>
__device__ __forceinline__ Word LoadWord(const T* data, int64_t at, int d, int head_dim) {
  return at >= 0 && d < head_dim ? LoadVec<4>(reinterpret_cast<const uint32_t*>(data + at + d))
                                 : Word{};
}
// Four elements of a word, from `begin` on. Halves are taken from words of 32 bits, which is one
// instruction each; loads of 16 bits would be taken apart as soon as they arrive.
template <typename T>
__device__ __forceinline__ Vec<float, 4> WidenFour(const Word& word, int begin) {
  Vec<float, 4> wide;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    if constexpr (std::is_same_v<T, float>) {
      wide.v[e] = std::bit_cast<float>(word.v[e]);
    } else {
      const uint32_t pair = word.v[(begin + e) / 2];
      if constexpr (std::is_same_v<T, BF16>) {
        wide.v[e] = std::bit_cast<float>(e % 2 == 0 ? pair << 16 : pair & 0xffff0000u);
      } else {
        wide.v[e] = ToWide(std::bit_cast<F16>(static_cast<uint16_t>(pair >> e % 2 * 16)));
      }
    }
  }
  return wide;
}

template <int kD, int kRows>
struct alignas(16) DecodeShared {
  float q_RD[kRows][kD];            // times scale * log2(e)
  float p_RK[kRows][kDecodeChunk];  // scores, then 2^(score - max)
  float o_WRD[kWarps][kRows][kD];   // of each warp's keys
  // Where a key and its value begin, from args.k and args.v; -1: no query sees it. Pointers would
  // be to memory of any kind, which the compiler keeps in order with the writes to this.
  int64_t k_at[kDecodeChunk];
  int64_t v_at[kDecodeChunk];
  MaxAndSum of_scores[kRows];
};

// scores_RK = q_RD k_KD^T. Four lanes share a key, and each has four of a warp's 32 keys at a time.
template <typename T, int kD, int kRows>
__device__ __forceinline__ void ScoreKeys(DecodeShared<kD, kRows>& shared, const T* keys,
                                          int head_dim) {
  constexpr int kLanes = 4;
  constexpr int kKeys = kKeysOfWarp * kLanes / 32;
  constexpr int kWords = kD / kVec<T> / kLanes;  // of a key, that a lane takes
  constexpr int kAhead = std::min(kWords, kWordsAhead / kKeys);
  static_assert(kKeys == kLanes);
  const int lane = threadIdx.x % 32;
  const int part = lane % kLanes;
  const int first = threadIdx.x / 32 * kKeysOfWarp + lane / kLanes;  // of a lane's keys

  float s[kRows][kKeys] = {};
#pragma unroll 1
  for (int begin = 0; begin < kWords; begin += kAhead) {
    Word k[kKeys][kAhead];
#pragma unroll
    for (int n = 0; n < kKeys; ++n) {
      const int64_t at = shared.k_at[first + n * (32 / kLanes)];
#pragma unroll
      for (int w = 0; w < kAhead; ++w) {
        k[n][w] = LoadWord(keys, at, ((begin + w) * kLanes + part) * kVec<T>, head_dim);
      }
    }
#pragma unroll
    for (int w = 0; w < kAhead; ++w) {
#pragma unroll
      for (int x = 0; x < kVec<T>; x += 4) {
        const int d = ((begin + w) * kLanes + part) * kVec<T> + x;
#pragma unroll
        for (int row = 0; row < kRows; ++row) {
          const Vec<float, 4> q = LoadVec<4>(&shared.q_RD[row][d]);
#pragma unroll
          for (int n = 0; n < kKeys; ++n) {
            const Vec<float, 4> key = WidenFour<T>(k[n][w], x);
#pragma unroll
            for (int e = 0; e < 4; ++e) s[row][n] = fmaf(q.v[e], key.v[e], s[row][n]);
          }
        }
      }
    }
  }
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    float own = 0.0f;  // of the key that this lane stores
#pragma unroll
    for (int n = 0; n < kKeys; ++n) {
      float sum = s[row][n];
#pragma unroll
      for (int mask = 1; mask < kLanes; mask *= 2) sum += ShuffleXor(sum, mask);
      if (n == part) own = sum;
    }
    shared.p_RK[row][first + part * (32 / kLanes)] = own;
  }
}

// Values that a lane has asked for, and o_RD += p_RK v_KD of a warp's keys. As many lanes as it
// takes share a key, and each has the warp's keys [first, first + kKeys) one by one.
template <typename T, int kD, int kRows>
class ValueSums {
 public:
  static constexpr int kLanes = std::min(32, kD / kVec<T>);
  static constexpr int kKeys = kKeysOfWarp * kLanes / 32;
  static constexpr int kWords = kD / kVec<T> / kLanes;
  static constexpr int kAhead = std::min(kKeys, kWordsAhead / kWords);  // keys
  using Shared = DecodeShared<kD, kRows>;

  __device__ __forceinline__ ValueSums(const T* values, int head_dim)
      : values_(values), head_dim_(head_dim) {}

  // Of its keys from `begin` on.
  __device__ __forceinline__ void Load(const Shared& shared, int begin) {
#pragma unroll
    for (int n = 0; n < kAhead; ++n) {
      const int64_t at = shared.v_at[FirstKey() + begin + n];
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        v_[n][w] = LoadWord(values_, at, Feature(w), head_dim_);
      }
    }
  }
  __device__ __forceinline__ void Add(const Shared& shared, int begin) {
#pragma unroll
    for (int n = 0; n < kAhead; n += 4) {
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        const Vec<float, 4> p = LoadVec<4>(&shared.p_RK[row][FirstKey() + begin + n]);
#pragma unroll
        for (int m = 0; m < 4; ++m) {
#pragma unroll
          for (int w = 0; w < kWords; ++w) {
#pragma unroll
            for (int x = 0; x < kVec<T>; x += 4) {
              const Vec<float, 4> value = WidenFour<T>(v_[n + m][w], x);
#pragma unroll
              for (int e = 0; e < 4; ++e) {
                o_[row][w][x + e] = fmaf(p.v[m], value.v[e], o_[row][w][x + e]);
              }
            }
          }
        }
      }
    }
  }
  __device__ __forceinline__ void Store(Shared& shared) {
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
#pragma unroll
        for (int e = 0; e < kVec<T>; ++e) {
          float sum = o_[row][w][e];
#pragma unroll
          for (int mask = kLanes; mask < 32; mask *= 2) sum += ShuffleXor(sum, mask);
          o_[row][w][e] = sum;
        }
        if (threadIdx.x % 32 >= kLanes) continue;
        float* to = &shared.o_WRD[threadIdx.x / 32][row][Feature(w)];
#pragma unroll
        for (int e = 0; e < kVec<T>; e += 4) {
          StoreVec<4>(to + e,
                      {o_[row][w][e], o_[row][w][e + 1], o_[row][w][e + 2], o_[row][w][e + 3]});
        }
      }
    }
  }

 private:
  __device__ __forceinline__ static int FirstKey() {
    return threadIdx.x / 32 * kKeysOfWarp + threadIdx.x % 32 / kLanes * kKeys;
  }
  __device__ __forceinline__ static int Feature(int word) {
    return (word * kLanes + threadIdx.x % kLanes) * kVec<T>;
  }

  const T* values_;
  int head_dim_;
  Word v_[kAhead][kWords];
  float o_[kRows][kWords][kVec<T>] = {};
};

// Turns a row's scores of the keys from `begin` on into 2^(score - max). A warp.
__device__ __forceinline__ MaxAndSum Exponentiate(float* p_K, const FlashArgs& args, int64_t b,
                                                  int64_t h, int64_t i, int64_t begin) {
  constexpr int kKeys = kDecodeChunk / 32;  // of a lane
  const int64_t limit = FlashKeyLimit(args, b, i);
  const int lane = threadIdx.x % 32;
  float s[kKeys];
  float max = -INFINITY;
#pragma unroll
  for (int n = 0; n < kKeys; ++n) {
    const int64_t j = begin + n * 32 + lane;
    const bool sees = j < limit && MasksAllow(args, b, i, j);
    s[n] = sees ? fmaf(BiasAt<float>(args, b, h, i, j), kLog2E, p_K[n * 32 + lane]) : -INFINITY;
    max = MaxOp()(max, s[n]);
  }
  max = WarpReduce(max, MaxOp());
  float sum = 0.0f;
#pragma unroll
  for (int n = 0; n < kKeys; ++n) {
    const float p = Exp2(s[n] - BaseOf(max));
    p_K[n * 32 + lane] = p;
    sum += p;
  }
  return {max, WarpReduce(sum, SumOp())};
}

template <typename T, int kD, int kRows>
__global__ void __launch_bounds__(kThreadsOfBlock)
    DecodeKernel(const __grid_constant__ FlashArgs args, const Partials partials) {
  auto& shared = *DynamicShared<DecodeShared<kD, kRows>>();
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int q_len = static_cast<int>(args.q_len);
  const int head_dim = static_cast<int>(args.head_dim);
  const int shared_by = static_cast<int>(args.heads / args.kv_heads);
  // Blocks that share keys stand side by side, so that the second finds them in the cache.
  const int parts = (q_len * shared_by + kRows - 1) / kRows;
  const int chunk = blockIdx.x / parts;
  const int first_row = blockIdx.x % parts * kRows;
  const int rows = min(kRows, q_len * shared_by - first_row);
  const int64_t g = blockIdx.y;
  const int64_t b = blockIdx.z;
  const auto head_of = [&](int row) { return g * shared_by + (first_row + row) / q_len; };
  const auto query_of = [&](int row) { return (first_row + row) % q_len; };

  // The keys that some query sees. What lies behind them may be no number at all, which even a
  // probability of zero does not make one.
  const int64_t begin = int64_t{chunk} * kDecodeChunk;
  const int64_t first = FlashFirstKey(args, b, 0);
  const int64_t limit = FlashKeyLimit(args, b, q_len - 1);
  if (partials.chunks > 1 && (begin >= limit || begin + kDecodeChunk <= first)) return;

  const int64_t j = begin + threadIdx.x;
  const bool seen = first <= j && j < limit;
  const KeyPlace place = seen ? PlaceOfKey(args, b, static_cast<uint32_t>(j)) : KeyPlace{};
  shared.k_at[threadIdx.x] = seen ? FlashOffset(args.k_stride, place.row, g, place.time) : -1;
  shared.v_at[threadIdx.x] = seen ? FlashOffset(args.v_stride, place.row, g, place.time) : -1;
  const float factor = static_cast<float>(args.scale) * kLog2E;
  for (int row = warp; row < kRows; row += kWarps) {
    const T* q = static_cast<const T*>(args.q);
    if (row < rows) q += FlashOffset(args.q_stride, b, head_of(row), query_of(row));
    for (int d = lane; d < kD; d += 32) {
      shared.q_RD[row][d] = row < rows && d < head_dim ? ToWide(q[d]) * factor : 0.0f;
    }
  }
  __syncthreads();

  ScoreKeys<T>(shared, static_cast<const T*>(args.k), head_dim);
  ValueSums<T, kD, kRows> sums(static_cast<const T*>(args.v), head_dim);
  sums.Load(shared, 0);  // under way during the softmax
  __syncthreads();
  for (int row = warp; row < rows; row += kWarps) {
    const MaxAndSum of_row =
        Exponentiate(shared.p_RK[row], args, b, head_of(row), query_of(row), begin);
    if (lane == 0) shared.of_scores[row] = of_row;
  }
  __syncthreads();
  sums.Add(shared, 0);
#pragma unroll 1
  for (int n = sums.kAhead; n < sums.kKeys; n += sums.kAhead) {
    sums.Load(shared, n);
    sums.Add(shared, n);
  }
  sums.Store(shared);
  __syncthreads();

  for (int row = warp; row < rows; row += kWarps) {
    const int64_t h = head_of(row);
    const int64_t i = query_of(row);
    const MaxAndSum of_row = shared.of_scores[row];
    const int64_t query = (b * args.heads + h) * q_len + i;
    const int64_t partial = query * partials.chunks + chunk;
    T* o = static_cast<T*>(args.o) + FlashOffset(args.o_stride, b, h, i);
    for (int d = lane; d < head_dim; d += 32) {
      float sum = 0.0f;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += shared.o_WRD[w][row][d];
      if (partials.chunks > 1) {
        partials.o[partial * head_dim + d] = sum;
      } else {
        o[d] = FromWide<T>(sum * InverseOf(of_row.sum));
      }
    }
    if (lane > 0) continue;
    if (partials.chunks > 1) {
      partials.of_scores[partial] = of_row;
    } else {
      static_cast<float*>(args.lse)[query] = LogSumExp(of_row);
    }
  }
}

// o and lse "=" what the chunks of a query left, a block per query. Warp w takes every kWarps-th
// chunk from the w-th on.
template <typename T>
__global__ void __launch_bounds__(kThreadsOfBlock)
    CombineKernel(const __grid_constant__ FlashArgs args, const Partials partials) {
  auto& o_WD = BlockShared<float[kWarps][kMostDecodeFeatures]>();
  auto& sum_W = BlockShared<float[kWarps]>();
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int64_t i = blockIdx.x;
  const int64_t h = blockIdx.y;
  const int64_t b = blockIdx.z;
  const int64_t query = (b * args.heads + h) * args.q_len + i;
  const int head_dim = static_cast<int>(args.head_dim);
  const MaxAndSum* of_scores = partials.of_scores + query * partials.chunks;
  const float* o = partials.o + query * partials.chunks * head_dim;
  // The chunks of keys that this query sees, which are there.
  const int begin = static_cast<int>(FlashFirstKey(args, b, i) / kDecodeChunk);
  const int end = static_cast<int>((FlashKeyLimit(args, b, i) + kDecodeChunk - 1) / kDecodeChunk);

  float max = -INFINITY;
  for (int c = begin + lane; c < end; c += 32) max = MaxOp()(max, of_scores[c].max);
  max = WarpReduce(max, MaxOp());
  for (int d = lane * 4; d < head_dim; d += 32 * 4) {
    Vec<float, 4> o_of_warp = {};
    float sum = 0.0f;
#pragma unroll 8
    for (int c = begin + warp; c < end; c += kWarps) {
      const MaxAndSum of_chunk = of_scores[c];
      const Vec<float, 4> o_of_chunk = LoadVec<4>(o + int64_t{c} * head_dim + d);
      const float weight = Exp2(of_chunk.max - BaseOf(max));
      sum = fmaf(weight, of_chunk.sum, sum);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        o_of_warp.v[e] = fmaf(weight, o_of_chunk.v[e], o_of_warp.v[e]);
      }
    }
    StoreVec<4>(&o_WD[warp][d], o_of_warp);
    if (lane == 0) sum_W[warp] = sum;
  }
  __syncthreads();
  MaxAndSum whole{max, 0.0f};
#pragma unroll
  for (int w = 0; w < kWarps; ++w) whole.sum += sum_W[w];
  T* to = static_cast<T*>(args.o) + FlashOffset(args.o_stride, b, h, i);
  for (int d = threadIdx.x; d < head_dim; d += kThreadsOfBlock) {
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += o_WD[w][d];
    to[d] = FromWide<T>(sum * InverseOf(whole.sum));
  }
  if (threadIdx.x == 0) static_cast<float*>(args.lse)[query] = LogSumExp(whole);
}

// Calls f(T{}, kD, kRows) with what the kernel is compiled for.
template <typename F>
void DispatchDecode(const FlashArgs& args, F&& f) {
  const int64_t rows = args.q_len * (args.heads / args.kv_heads);
  const auto with_rows = [&](auto zero, auto features) {
    if (rows == 1) {
      f(zero, features, std::integral_constant<int, 1>());
    } else if (rows <= 4) {
      f(zero, features, std::integral_constant<int, 4>());
    } else {
      f(zero, features, std::integral_constant<int, 8>());
    }
  };
  const auto with_features = [&](auto zero) {
    if (args.head_dim <= 64) {
      with_rows(zero, std::integral_constant<int, 64>());
    } else if (args.head_dim <= 128) {
      with_rows(zero, std::integral_constant<int, 128>());
    } else {
      with_rows(zero, std::integral_constant<int, kMostDecodeFeatures>());
    }
  };
  if (args.dtype == DType::kFloat32) {
    with_features(float{});
  } else {
    DispatchCudaHalf(args.dtype, "attention", with_features);
  }
}

}  // namespace

void RunDecodeForward(const FlashArgs& args, float* workspace) {
  const int64_t chunks = DecodeChunks(args);
  Partials partials{.chunks = static_cast<int>(chunks)};
  if (chunks > 1) {
    partials.o = workspace;
    partials.of_scores = reinterpret_cast<MaxAndSum*>(
        workspace + args.batch * args.heads * args.q_len * chunks * args.head_dim);
  }
  DispatchDecode(args, [&](auto zero, auto features, auto rows_of_block) {
    using T = decltype(zero);
    constexpr int kD = decltype(features)::value;
    constexpr int kRows = decltype(rows_of_block)::value;
    const int64_t rows = args.q_len * (args.heads / args.kv_heads);
    const dim3 blocks(static_cast<unsigned>(chunks * ((rows + kRows - 1) / kRows)),
                      static_cast<unsigned>(args.kv_heads), static_cast<unsigned>(args.batch));
    Launch("attention", {blocks, kThreadsOfBlock, sizeof(DecodeShared<kD, kRows>)},
           DecodeKernel<T, kD, kRows>, args, partials);
    if (chunks == 1) return;
    const dim3 every_query(static_cast<unsigned>(args.q_len), static_cast<unsigned>(args.heads),
                           static_cast<unsigned>(args.batch));
    Launch("attention", {every_query, kThreadsOfBlock}, CombineKernel<T>, args, partials);
  });
}

}  // namespace tessera::cuda
