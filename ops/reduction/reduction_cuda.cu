// SPDX-License-Identifier: Apache-2.0
// Sums and extremes on the GPU. A sum is cut into chunks by its shape alone; a block adds a chunk
// up in a fixed order, and a second kernel adds the chunks up in a fixed order, in double.
#include <algorithm>
#include <type_traits>

#include "core/cuda/allocator.h"
#include "core/cuda/element.cuh"
#include "core/cuda/groups.cuh"
#include "core/cuda/launch.h"
#include "core/cuda/reduce.cuh"
#include "ops/reduction/reduction_kernel.h"
#include "ops/reduction/sum_chunks.h"

namespace tessera::cuda {
namespace {

// What a chunk is summed in, and what chunks are added in.
template <typename T>
using ChunkSum = std::conditional_t<std::is_same_v<T, int64_t>, int64_t, Wide<T>>;
template <typename T>
using TotalSum = std::conditional_t<std::is_same_v<T, int64_t>, int64_t, double>;

template <typename T>
__device__ __forceinline__ ChunkSum<T> Term(T value) {
  if constexpr (std::is_same_v<T, int64_t>) {
    return value;
  } else {
    return ToWide(value);
  }
}
template <typename T>
__device__ __forceinline__ T Rounded(TotalSum<T> value) {
  if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, double>) {
    return value;
  } else {
    return FromWide<T>(static_cast<float>(value));
  }
}

// ---- inner == 1: rows -------------------------------------------------------------------------

constexpr int64_t kRowChunk = kSumVectorChunk;

// partial[outer][chunk]; with one chunk per row, out itself. The order of additions is the same
// whether or not groups lie so that they are read at once (kWhole).
template <typename T, bool kWhole>
__global__ void SumRowChunks(const T* x, int64_t outer, int64_t count, int64_t chunks,
                             TotalSum<T>* partial, T* out) {
  for (int64_t i = blockIdx.x; i < outer * chunks; i += gridDim.x) {
    const int64_t row = i / chunks;
    const int64_t begin = (i - row * chunks) * kRowChunk;
    const int64_t n = min(kRowChunk, count - begin);
    ChunkSum<T> sum = 0;
    ForEachGroup<kVec<T>, 4, kWhole>(x + row * count + begin, n,
                                     [&]<int kCount>(int64_t, Vec<T, kCount> v) {
#pragma unroll
                                       for (int k = 0; k < kCount; ++k) sum += Term(v.v[k]);
                                     });
    sum = BlockReduce(sum, SumOp(), ChunkSum<T>(0));
    if (threadIdx.x == 0) {
      if (chunks == 1) {
        out[row] = Rounded<T>(sum);
      } else {
        partial[i] = sum;
      }
    }
  }
}

// out[row] = the sum of partial[row][...]: a block takes a row.
template <typename T>
__global__ void AddRowChunks(const TotalSum<T>* partial, int64_t outer, int64_t chunks, T* out) {
  for (int64_t row = blockIdx.x; row < outer; row += gridDim.x) {
    TotalSum<T> sum = 0;
    ForEachGroup<1, 4>(partial + row * chunks, chunks,
                       [&](int64_t, const Vec<TotalSum<T>, 1>& v) { sum += v.v[0]; });
    sum = BlockReduce(sum, SumOp(), TotalSum<T>(0));
    if (threadIdx.x == 0) out[row] = Rounded<T>(sum);
  }
}

// ---- inner > 1: columns -----------------------------------------------------------------------

constexpr int kColumns = 32;
constexpr int kRowLanes = kSumRowLanes;

// threadIdx.x is a group of kGroup columns, threadIdx.y takes every kRowLanes-th row of the chunk;
// the lanes are added in order. partial[outer][chunk][inner].
template <typename T, int kGroup>
__global__ void SumColumnChunks(const T* x, int64_t outer, int64_t count, int64_t inner,
                                int64_t chunk_rows, int64_t chunks, ChunkSum<T>* partial, T* out) {
  using Sum = ChunkSum<T>;
  auto& sums = BlockShared<Sum[kRowLanes][kColumns * kGroup]>();
  const int64_t column = (int64_t{blockIdx.x} * kColumns + threadIdx.x) * kGroup;
  for (int64_t i = blockIdx.y; i < outer * chunks; i += gridDim.y) {
    const int64_t o = i / chunks;
    const int64_t begin = (i - o * chunks) * chunk_rows;
    const int64_t end = min(begin + chunk_rows, count);
    Sum sum[kGroup] = {};
    if (column < inner) {
      for (int64_t row = begin + threadIdx.y; row < end; row += kRowLanes) {
        const Vec<T, kGroup> v = LoadVec<kGroup>(x + (o * count + row) * inner + column);
#pragma unroll
        for (int k = 0; k < kGroup; ++k) sum[k] += Term(v.v[k]);
      }
    }
#pragma unroll
    for (int k = 0; k < kGroup; ++k) sums[threadIdx.y][k * kColumns + threadIdx.x] = sum[k];
    __syncthreads();
    if (threadIdx.y == 0 && column < inner) {
      for (int lane = 1; lane < kRowLanes; ++lane) {
#pragma unroll
        for (int k = 0; k < kGroup; ++k) sum[k] += sums[lane][k * kColumns + threadIdx.x];
      }
#pragma unroll
      for (int k = 0; k < kGroup; ++k) {
        if (chunks == 1) {
          out[o * inner + column + k] = Rounded<T>(sum[k]);
        } else {
          partial[i * inner + column + k] = sum[k];
        }
      }
    }
    __syncthreads();
  }
}

// out[o][j] = partial[o][0][j] + partial[o][1][j] + ... in order.
template <typename T>
__global__ void AddChunks(const ChunkSum<T>* partial, int64_t outer, int64_t chunks, int64_t inner,
                          T* out) {
  for (int64_t i = GridThread(); i < outer * inner; i += GridThreads()) {
    const int64_t o = i / inner;
    const ChunkSum<T>* column = partial + o * chunks * inner + (i - o * inner);
    TotalSum<T> sum = 0;
#pragma unroll 8
    for (int64_t c = 0; c < chunks; ++c) sum += column[c * inner];
    out[i] = Rounded<T>(sum);
  }
}

template <typename T>
void SumVectors(const SumArgs& args) {
  static_assert(sizeof(TotalSum<T>) == 8);
  const int64_t chunks = SumChunksOf(args).count;
  const Workspace partial(SumWorkspace(args));
  const int threads = ThreadsForRow(std::min(args.count, kRowChunk), 8);
  T* out = static_cast<T*>(args.out);
  const bool whole = args.count % kVec<T> == 0 && IsAligned(args.x, 16);
  Launch("sum", {GridForRows(args.outer * chunks), threads},
         whole ? SumRowChunks<T, true> : SumRowChunks<T, false>, static_cast<const T*>(args.x),
         args.outer, args.count, chunks, partial.as<TotalSum<T>>(), out);
  if (chunks == 1) return;
  Launch("sum", {GridForRows(args.outer), ThreadsForRow(chunks, 4)}, AddRowChunks<T>,
         static_cast<const TotalSum<T>*>(partial.data()), args.outer, chunks, out);
}

template <typename T, int kGroup>
void SumMatrices(const SumArgs& args) {
  const auto [rows, chunks] = SumChunksOf(args);
  const Workspace partial(SumWorkspace(args));
  const int64_t columns = kColumns * kGroup;
  const dim3 grid(static_cast<unsigned>((args.inner + columns - 1) / columns),
                  static_cast<unsigned>(std::min<int64_t>(args.outer * chunks, 65535)));
  T* out = static_cast<T*>(args.out);
  Launch("sum", {grid, dim3(kColumns, kRowLanes)}, SumColumnChunks<T, kGroup>,
         static_cast<const T*>(args.x), args.outer, args.count, args.inner, rows, chunks,
         partial.as<ChunkSum<T>>(), out);
  if (chunks == 1) return;
  Launch("sum", {GridFor(args.outer * args.inner), kThreads}, AddChunks<T>,
         static_cast<const ChunkSum<T>*>(partial.data()), args.outer, chunks, args.inner, out);
}

template <typename T>
void SumTyped(const SumArgs& args) {
  constexpr int kGroup = sizeof(T) == 2 ? 4 : 1;
  if (args.inner == 1) {
    SumVectors<T>(args);
  } else if (kGroup > 1 && args.inner % kGroup == 0 && IsAligned(args.x, kGroup * sizeof(T))) {
    SumMatrices<T, kGroup>(args);
  } else {
    SumMatrices<T, 1>(args);
  }
}

void SumCuda(const SumArgs& args) {
  if (args.dtype == DType::kInt64) {
    SumTyped<int64_t>(args);
  } else {
    DispatchCudaFloat(args.dtype, "sum", [&](auto zero) { SumTyped<decltype(zero)>(args); });
  }
}

// ---- Extremes -----------------------------------------------------------------------------------

// The first NaN wins, then the largest (smallest), then the first of equal ones. position < 0 is
// no candidate.
template <typename V>
struct Candidate {
  V value;
  int64_t position;
};
template <typename V>
__device__ __forceinline__ Candidate<V> ShuffleXor(Candidate<V> c, int mask) {
  return {static_cast<V>(__shfl_xor_sync(0xffffffffu, c.value, mask)),
          __shfl_xor_sync(0xffffffffu, c.position, mask)};
}
template <typename V>
__device__ __forceinline__ Candidate<V> Better(Candidate<V> a, Candidate<V> b, bool largest) {
  if (b.position < 0) return a;
  if (a.position < 0) return b;
  const bool a_nan = a.value != a.value;
  const bool b_nan = b.value != b.value;
  if (a_nan != b_nan) return a_nan ? a : b;
  if (!a_nan && a.value != b.value) return (a.value > b.value) == largest ? a : b;
  return a.position < b.position ? a : b;
}

// A warp takes one result when adjacent elements compete (inner == 1), else a thread does.
template <typename T>
__global__ void ExtremeKernel(const T* x, int64_t results, int64_t count, int64_t inner,
                              bool largest, T* values, int64_t* indices) {
  using V = decltype(Comparable(T{}));
  const bool by_warp = inner == 1;
  const int lanes = by_warp ? 32 : 1;
  const int lane = by_warp ? threadIdx.x % 32 : 0;
  for (int64_t i = GridThread() / lanes; i < results; i += GridThreads() / lanes) {
    const T* column = x + i / inner * count * inner + i % inner;
    Candidate<V> best{V{}, -1};
    for (int64_t k = lane; k < count; k += lanes) {
      best = Better(best, Candidate<V>{Comparable(column[k * inner]), k}, largest);
    }
    if (by_warp) {
      best =
          WarpReduce(best, [&](Candidate<V> a, Candidate<V> b) { return Better(a, b, largest); });
    }
    if (lane == 0) {
      values[i] = column[best.position * inner];
      indices[i] = best.position;
    }
  }
}

void ExtremeCuda(const ExtremeArgs& args) {
  const int64_t results = args.outer * args.inner;
  DispatchCudaAll(args.dtype, "max", [&](auto zero) {
    using T = decltype(zero);
    Launch("max", {GridFor(results * (args.inner == 1 ? 32 : 1)), kThreads}, ExtremeKernel<T>,
           static_cast<const T*>(args.x), results, args.count, args.inner, args.largest,
           static_cast<T*>(args.values), args.indices);
  });
}

TESSERA_REGISTER_KERNEL(sum_kernel, DeviceType::kCuda, SumCuda);
TESSERA_REGISTER_KERNEL(extreme_kernel, DeviceType::kCuda, ExtremeCuda);

}  // namespace
}  // namespace tessera::cuda
