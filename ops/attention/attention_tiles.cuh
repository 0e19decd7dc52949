// SPDX-License-Identifier: Apache-2.0
// Square tiles in shared memory, kTile rows of kTile features (or keys), as attention without
// tensor cores loads, multiplies and stores them. Products are those of W, float or double, summed
// in order; a block has kThreadsOfBlock threads. Included by plain_attention_cuda.cu only.
#ifndef TESSERA_OPS_ATTENTION_ATTENTION_TILES_CUH_
#define TESSERA_OPS_ATTENTION_ATTENTION_TILES_CUH_

#include <cstdint>

#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "core/cuda/reduce.cuh"
#include "ops/attention/flash_kernel.h"

namespace tessera::cuda {

constexpr int kRowThreads = 16;
constexpr int kColumnThreads = 8;
constexpr int kThreadsOfBlock = kRowThreads * kColumnThreads;

template <typename W>
inline constexpr int kTile = 256 / sizeof(W);
// Rows lie 16 bytes more than a tile's features apart: the 8 rows that are read at once lie in
// different banks.
template <typename W>
inline constexpr int kStride = kTile<W> + kVec<W>;
template <typename W>
inline constexpr int kTileSize = kTile<W>* kStride<W>;

// What a thread has of a tile: [m][n] is of row `row + kRowThreads * m`. Of products of rows the
// column is `column + kColumnThreads * n`; of sums that are written, features lie in groups of
// kVec<W>, of which the thread has every kColumnThreads-th (FeatureOf).
template <typename W>
inline constexpr int kRows = kTile<W> / kRowThreads;
template <typename W>
inline constexpr int kColumns = kTile<W> / kColumnThreads;
template <typename W>
using Part = W[kRows<W>][kColumns<W>];

// Threads that are neighbours in one direction read the same address of one operand, and those in
// the other direction of the other: then 16 lanes at a time are served, instead of 8.
struct Place {
  int row, column;
};
__device__ __forceinline__ Place PlaceOfThread() {
  const int lane = threadIdx.x % 32;
  return {static_cast<int>(threadIdx.x) / 32 * 4 + lane / 16 * 2 + lane % 2, lane / 2 % 8};
}
template <typename W>
__device__ __forceinline__ int FeatureOf(const Place& place, int n) {
  return (place.column + n / kVec<W> * kColumnThreads) * kVec<W> + n % kVec<W>;
}

// Calls f(m, n, row, column) for what a thread has of a tile of products of rows.
template <typename W, typename F>
__device__ __forceinline__ void EachPair(const Place& place, F f) {
#pragma unroll
  for (int m = 0; m < kRows<W>; ++m) {
#pragma unroll
    for (int n = 0; n < kColumns<W>; ++n) {
      f(m, n, place.row + m * kRowThreads, place.column + n * kColumnThreads);
    }
  }
}

// Calls f(value) with this and the other threads' that have the same rows.
template <typename W, typename Op>
__device__ __forceinline__ W ReduceColumns(W value, Op op) {
#pragma unroll
  for (int lane = 2; lane < 16; lane *= 2) value = op(value, ShuffleXor(value, lane));
  return value;
}

// c += a b^T over the first `depth` features, rounded up to kVec<W>.
template <typename W>
__device__ __forceinline__ void AddRowsByRows(Part<W>& c, const W* a, const W* b, int depth,
                                              const Place& place) {
  constexpr int kGroup = kVec<W>;
  const W* a_at = a + place.row * kStride<W>;
  const W* b_at = b + place.column * kStride<W>;
#pragma unroll 2
  for (int d = 0; d < depth; d += kGroup) {
    Vec<W, kGroup> rows[kRows<W>];
#pragma unroll
    for (int m = 0; m < kRows<W>; ++m) {
      rows[m] = LoadVec<kGroup>(a_at + m * kRowThreads * kStride<W> + d);
    }
#pragma unroll
    for (int n = 0; n < kColumns<W>; ++n) {
      const auto column = LoadVec<kGroup>(b_at + n * kColumnThreads * kStride<W> + d);
#pragma unroll
      for (int m = 0; m < kRows<W>; ++m) {
#pragma unroll
        for (int x = 0; x < kGroup; ++x) c[m][n] += rows[m].v[x] * column.v[x];
      }
    }
  }
}

// c, features of sums that are written, += a b over the first `depth` rows of b, rounded up to
// kVec<W>.
template <typename W>
__device__ __forceinline__ void AddRowsByColumns(Part<W>& c, const W* a, const W* b, int depth,
                                                 const Place& place) {
  constexpr int kGroup = kVec<W>;
  const W* a_at = a + place.row * kStride<W>;
  const W* b_at = b + place.column * kGroup;
#pragma unroll 2
  for (int k = 0; k < depth; k += kGroup) {
    Vec<W, kGroup> rows[kRows<W>];
#pragma unroll
    for (int m = 0; m < kRows<W>; ++m) {
      rows[m] = LoadVec<kGroup>(a_at + m * kRowThreads * kStride<W> + k);
    }
#pragma unroll
    for (int x = 0; x < kGroup; ++x) {
#pragma unroll
      for (int n = 0; n < kColumns<W>; n += kGroup) {
        const auto columns = LoadVec<kGroup>(b_at + (k + x) * kStride<W> + n * kColumnThreads);
#pragma unroll
        for (int m = 0; m < kRows<W>; ++m) {
#pragma unroll
          for (int y = 0; y < kGroup; ++y) c[m][n + y] += rows[m].v[x] * columns.v[y];
        }
      }
    }
  }
}

// A tile from what its threads have of it, for these rows' own threads to read: all of one warp.
template <typename W>
__device__ __forceinline__ void StorePart(W* tile, const Part<W>& part, const Place& place) {
  __syncwarp();
  EachPair<W>(place, [&](int m, int n, int row, int column) {
    tile[row * kStride<W> + column] = part[m][n];
  });
  __syncwarp();
}

// Whether rows are read and written kVec<Wide<T>> elements at a time.
template <typename T>
__device__ __forceinline__ bool InGroups(const void* data, const FlashStrides& stride,
                                         int head_dim) {
  constexpr int kGroup = kVec<Wide<T>>;
  return reinterpret_cast<uintptr_t>(data) % (kGroup * sizeof(T)) == 0 &&
         (stride.batch | stride.head | stride.time | head_dim) % kGroup == 0;
}

// Rows [begin, begin + kTile) and features [d_begin, d_begin + kTile) to shared memory, row r from
// offset_of(r); rows from `rows` on and features from head_dim on become zeros. kAtOnce: of the
// loads of a thread.
template <typename T, int kAtOnce, typename OffsetOf>
__device__ __forceinline__ void LoadTile(Wide<T>* tile, const void* data,
                                         const FlashStrides& stride, int begin, int rows,
                                         int d_begin, int head_dim, OffsetOf offset_of) {
  using W = Wide<T>;
  constexpr int kGroup = kVec<W>;
  constexpr int kGroups = kTile<W> / kGroup;
  constexpr int kPass = kThreadsOfBlock / kGroups;
  const int r = threadIdx.x / kGroups;
  const int d = threadIdx.x % kGroups * kGroup;
  const int left = min(kGroup, head_dim - d_begin - d);  // features of this group
  const T* base = static_cast<const T*>(data) + d_begin + d;
  W* to = tile + r * kStride<W> + d;
  const auto each_row = [&](auto load) {
#pragma unroll kAtOnce
    for (int pass = 0; pass < kTile<W>; pass += kPass) {
      Vec<W, kGroup> group{};
      const int row = begin + r + pass;
      if (row < rows && left > 0) load(base + offset_of(row), group.v);
      StoreVec(to + pass * kStride<W>, group);
    }
  };
  if (InGroups<T>(data, stride, head_dim)) {
    each_row([&](const T* from, W* group) {
      const auto elements = LoadVec<kGroup>(from);
#pragma unroll
      for (int x = 0; x < kGroup; ++x) group[x] = ToWide(elements.v[x]);
    });
  } else {
    each_row([&](const T* from, W* group) {
#pragma unroll
      for (int x = 0; x < kGroup; ++x) group[x] = x < left ? ToWide(from[x]) : W(0);
    });
  }
}
// The same of head `h` of row `b`.
template <typename T>
__device__ __forceinline__ void LoadTile(Wide<T>* tile, const void* data,
                                         const FlashStrides& stride, int64_t b, int64_t h,
                                         int begin, int rows, int d_begin, int head_dim) {
  LoadTile<T, 8>(
      tile, data, stride, begin, rows, d_begin, head_dim,
      [&, first = FlashOffset(stride, b, h, 0)](int row) { return first + row * stride.time; });
}

// Writes sums, times `scale` of what a thread has of rows, to head `h` of row `b`: rows from
// `begin`, of which those from `rows` on are left out, and features from d_begin.
template <typename T>
__device__ __forceinline__ void StoreSums(void* data, const FlashStrides& stride, int64_t b,
                                          int64_t h, int begin, int rows, int d_begin, int head_dim,
                                          const Part<Wide<T>>& sums,
                                          const Wide<T> (&scale)[kRows<Wide<T>>],
                                          const Place& place) {
  using W = Wide<T>;
  constexpr int kGroup = kVec<W>;
  const bool in_groups = InGroups<T>(data, stride, head_dim);
#pragma unroll
  for (int m = 0; m < kRows<W>; ++m) {
    const int row = begin + place.row + m * kRowThreads;
    if (row >= rows) continue;
    T* to = static_cast<T*>(data) + FlashOffset(stride, b, h, row);
#pragma unroll
    for (int n = 0; n < kColumns<W>; n += kGroup) {
      const int d = d_begin + FeatureOf<W>(place, n);
      Vec<T, kGroup> group;
#pragma unroll
      for (int x = 0; x < kGroup; ++x) group.v[x] = FromWide<T>(sums[m][n + x] * scale[m]);
      if (in_groups && d < head_dim) {
        StoreVec(to + d, group);
      } else {
#pragma unroll
        for (int x = 0; x < kGroup; ++x) {
          if (d + x < head_dim) to[d + x] = group.v[x];
        }
      }
    }
  }
}

__host__ __device__ constexpr int TilesOf(int64_t n, int tile) {
  return static_cast<int>((n + tile - 1) / tile);
}

}  // namespace tessera::cuda

#endif  // TESSERA_OPS_ATTENTION_ATTENTION_TILES_CUH_
