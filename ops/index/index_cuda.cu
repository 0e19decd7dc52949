// SPDX-License-Identifier: Apache-2.0
// Look-ups and their gradients. What is added to one row is added in index order, as on the CPU:
// indices are sorted (stably), and each run of equal ones is one block's.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/cuda/allocator.h"
#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "core/cuda/sort_pairs.h"
#include "ops/index/index_kernel.h"
#include "ops/index/put_workspace.h"

namespace tessera::cuda {
namespace {

// `inner` counts words here.
template <typename Word>
__global__ void TakeKernel(TakeArgs args, int64_t inner) {
  const int64_t total = args.outer * args.count * inner;
  const Word* x = static_cast<const Word*>(args.x);
  Word* out = static_cast<Word*>(args.out);
  for (int64_t i = GridThread(); i < total; i += GridThreads()) {
    const int64_t row = i / inner;
    const int64_t column = i - row * inner;
    const int64_t o = row / args.count;
    const int64_t at = args.indices[row - o * args.count] - args.begin;
    out[i] = at < 0 || at >= args.size ? Word{} : x[(o * args.size + at) * inner + column];
  }
}

void TakeCuda(const TakeArgs& args) {
  const int64_t bytes = args.inner * static_cast<int64_t>(DTypeSize(args.dtype));
  const auto launch = [&](auto word) {
    using Word = decltype(word);
    const int64_t inner = bytes / static_cast<int64_t>(sizeof(Word));
    Launch("index_select", {GridFor(args.outer * args.count * inner), kThreads}, TakeKernel<Word>,
           args, inner);
  };
  const auto fits = [&](size_t n) {
    return bytes % static_cast<int64_t>(n) == 0 && IsAligned(args.x, n) && IsAligned(args.out, n);
  };
  DispatchCudaWidest(fits, launch);
}

// keys[j] = the row that indices[j] names, `size` where it is left out; order[j] = j.
__global__ void KeysKernel(PutArgs args, uint32_t* keys, uint32_t* order) {
  for (int64_t j = GridThread(); j < args.count; j += GridThreads()) {
    const int64_t at = args.indices[j] - args.begin;
    const bool out = at < 0 || at >= args.size || args.indices[j] == args.skip;
    keys[j] = static_cast<uint32_t>(out ? args.size : at);
    order[j] = static_cast<uint32_t>(j);
  }
}

constexpr int kMostPutThreads = 256;
constexpr uint32_t kNoRow = 0xffffffffu;

// The blocks of blockIdx.x take a run of equal keys, for each of outer; a thread adds up a group of
// columns. Additions wait for one another, so what they add is loaded many rows ahead: a token may
// be every twentieth. Which rows these are is read by all threads at once, as is whether a run
// begins.
template <typename To, typename From, int kGroup>
__global__ void __launch_bounds__(kMostPutThreads, 4)
    PutKernel(PutArgs args, const uint32_t* keys, const uint32_t* order) {
  using W = Wide<To>;
  constexpr int kAhead = 16;
  constexpr int kFew = 4;
  auto& rows = BlockShared<uint32_t[kMostPutThreads]>();
  const int64_t inner = args.inner;
  const int64_t total = args.outer * args.count;
  const int block = static_cast<int>(blockDim.x);
  const int64_t width = int64_t{block} * kGroup;
  for (int64_t i = blockIdx.x; i < total; i += gridDim.x) {
    const int64_t o = i / args.count;
    const int64_t begin = i - o * args.count;
    const uint32_t key = keys[begin];
    const uint32_t key_before = keys[max(begin - 1, int64_t{0})];
    const bool begins = key < args.size && (begin == 0 || key_before != key);
    To* x = static_cast<To*>(args.x) + (o * args.size + key) * inner;
    const From* grad = static_cast<const From*>(args.grad) + o * args.count * inner;
    // The rows of the run from `from` on, and kNoRow behind its end.
    const auto read_rows = [&](int64_t from) {
      const int64_t j = from + threadIdx.x;
      const uint32_t row = j < args.count ? order[j] : kNoRow;
      const uint32_t its_key = j < args.count ? keys[j] : key;
      __syncthreads();  // what is there is read
      rows[threadIdx.x] = its_key == key ? row : kNoRow;
      __syncthreads();
    };
    for (int64_t first = blockIdx.y * width; first < inner; first += gridDim.y * width) {
      read_rows(begin);
      if (!begins) break;
      const int64_t column = first + threadIdx.x * kGroup;
      const bool there = column < inner;
      Vec<To, kGroup> sum;
      if (there) sum = LoadVec<kGroup>(x + column);
      // Those of kFew rows that are behind the run's end are left out.
      const auto add = [&](auto at_once, const uint32_t* row) {
        constexpr int kRows = decltype(at_once)::value;
        const auto is_row = [&](int u) { return kRows == kAhead || row[u] != kNoRow; };
        Vec<From, kGroup> g[kRows];
#pragma unroll
        for (int u = 0; u < kRows; ++u) {
          if (is_row(u)) g[u] = LoadVec<kGroup>(grad + row[u] * inner + column);
        }
#pragma unroll
        for (int u = 0; u < kRows; ++u) {
          if (!is_row(u)) break;
#pragma unroll
          for (int k = 0; k < kGroup; ++k) {
            sum.v[k] = FromWide<To>(ToWide(sum.v[k]) + static_cast<W>(ToWide(g[u].v[k])));
          }
        }
      };
      for (int64_t from = begin;;) {
        for (int r = 0; there && r < block && rows[r] != kNoRow;) {
          if (r + kAhead <= block && rows[r + kAhead - 1] != kNoRow) {
            add(std::integral_constant<int, kAhead>(), &rows[r]);
            r += kAhead;
          } else {
            add(std::integral_constant<int, kFew>(), &rows[r]);
            r += kFew;
          }
        }
        if (rows[block - 1] == kNoRow) break;
        from += block;
        read_rows(from);
      }
      if (there) StoreVec<kGroup>(x + column, sum);
    }
  }
}

void PutCuda(const PutArgs& args) {
  TESSERA_CHECK(args.count < (int64_t{1} << 31) && args.size < (int64_t{1} << 31), "index_add",
                args.count, " indices into ", args.size, " rows are more than 2^31");
  const auto n = static_cast<size_t>(args.count);
  const Workspace workspace(PutWorkspace(args));
  uint32_t* keys = workspace.as<uint32_t>();
  uint32_t* order = keys + n;
  uint32_t* sorted_keys = order + n;
  uint32_t* sorted_order = sorted_keys + n;
  Launch("index_add", {GridFor(args.count), kThreads}, KeysKernel, args, keys, order);
  int bits = 1;
  while ((int64_t{1} << bits) <= args.size) ++bits;
  SortPairs("index_add", {keys, sorted_keys, order, sorted_order, static_cast<int>(n), bits,
                          workspace.as<char>() + PutWords(args)});
  const auto launch = [&](auto to, auto from) {
    using To = decltype(to);
    using From = decltype(from);
    constexpr int64_t kVecOfBoth = std::min(kVec<To>, kVec<From>);
    DispatchCudaGroup<kVecOfBoth>(
        args.inner % kVecOfBoth == 0 && AreAligned({args.x, args.grad}), [&](auto group) {
          constexpr int kGroup = decltype(group)::value;
          const int64_t groups = args.inner / kGroup;
          const auto blocks = static_cast<unsigned>(
              std::clamp<int64_t>((groups + kMostPutThreads - 1) / kMostPutThreads, 1, 65535));
          const int64_t threads = ((groups + blocks - 1) / blocks + 31) / 32 * 32;
          Launch("index_add",
                 {dim3(GridForRows(args.outer * args.count), blocks),
                  static_cast<unsigned>(std::clamp<int64_t>(threads, 32, kMostPutThreads))},
                 PutKernel<To, From, kGroup>, args, sorted_keys, sorted_order);
        });
  };
  DispatchCudaFloat(args.grad_dtype, "index_add", [&](auto from) {
    // Gradients are summed in the accumulation dtype.
    if (args.x_dtype == DType::kFloat64) {
      launch(double{}, from);
    } else {
      TESSERA_CHECK(args.x_dtype == DType::kFloat32, "index_add", "sums of ", args.x_dtype,
                    " on the GPU");
      launch(float{}, from);
    }
  });
}

template <typename Word>
__global__ void GatherKernel(GatherArgs args) {
  const int64_t total = args.outer * args.count * args.inner;
  for (int64_t i = GridThread(); i < total; i += GridThreads()) {
    const int64_t o = i / (args.count * args.inner);
    const int64_t column = i % args.inner;
    const int64_t at = args.index[i];
    const Word* x = static_cast<const Word*>(args.x);
    // The host cannot look at indices without waiting; those outside touch no memory.
    static_cast<Word*>(args.picked)[i] =
        at < 0 || at >= args.size ? Word{} : x[(o * args.size + at) * args.inner + column];
  }
}

void GatherCuda(const GatherArgs& args) {
  DispatchCudaWord(args.dtype, [&](auto word) {
    Launch("gather", {GridFor(args.outer * args.count * args.inner), kThreads},
           GatherKernel<decltype(word)>, args);
  });
}

// A thread owns a column and adds in index order.
template <typename T>
__global__ void ScatterAddKernel(GatherArgs args) {
  for (int64_t c = GridThread(); c < args.outer * args.inner; c += GridThreads()) {
    const int64_t o = c / args.inner;
    const int64_t column = c - o * args.inner;
    for (int64_t j = 0; j < args.count; ++j) {
      const int64_t p = (o * args.count + j) * args.inner + column;
      const int64_t at = args.index[p];
      if (at < 0 || at >= args.size) continue;
      T* x = static_cast<T*>(args.x) + (o * args.size + at) * args.inner + column;
      const T picked = static_cast<const T*>(args.picked)[p];
      if constexpr (std::is_same_v<T, uint64_t>) {
        *x += picked;
      } else {
        *x = FromWide<T>(ToWide(*x) + ToWide(picked));
      }
    }
  }
}

void ScatterAddCuda(const GatherArgs& args) {
  const auto run = [&](auto zero) {
    Launch("scatter_add", {GridFor(args.outer * args.inner), kThreads},
           ScatterAddKernel<decltype(zero)>, args);
  };
  if (args.dtype == DType::kInt64) return run(uint64_t{});
  DispatchCudaFloat(args.dtype, "scatter_add", run);
}

TESSERA_REGISTER_KERNEL(take_kernel, DeviceType::kCuda, TakeCuda);
TESSERA_REGISTER_KERNEL(put_kernel, DeviceType::kCuda, PutCuda);
TESSERA_REGISTER_KERNEL(gather_kernel, DeviceType::kCuda, GatherCuda);
TESSERA_REGISTER_KERNEL(scatter_add_kernel, DeviceType::kCuda, ScatterAddCuda);

}  // namespace
}  // namespace tessera::cuda
