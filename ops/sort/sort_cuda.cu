// SPDX-License-Identifier: Apache-2.0
// Sorting on the GPU: all rows at once, by stable radix sorts of 32 bits each, of the elements'
// keys from the lowest bits on and of their rows at last.
#include <algorithm>
#include <cstdint>

#include "core/cuda/allocator.h"
#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "core/cuda/sort_pairs.h"
#include "ops/sort/sort_kernel.h"
#include "ops/sort/sort_key.h"

namespace tessera::cuda {
namespace {

// keys[i] = the word from `shift` on of the key of the element that order[i] names.
template <typename T>
__global__ void KeysKernel(const T* x, int64_t n, bool descending, int shift, const uint32_t* order,
                           uint32_t* keys) {
  for (int64_t i = GridThread(); i < n; i += GridThreads()) {
    const uint64_t key = static_cast<uint64_t>(SortKey(Comparable(x[order[i]]))) >> shift;
    keys[i] = static_cast<uint32_t>(descending ? ~key : key);
  }
}

__global__ void CountKernel(int64_t n, uint32_t* order) {
  for (int64_t i = GridThread(); i < n; i += GridThreads()) order[i] = static_cast<uint32_t>(i);
}

// The row, [outer, inner], of the element that order[i] names.
__global__ void RowsKernel(AlongDim dim, int64_t n, const uint32_t* order, uint32_t* keys) {
  for (int64_t i = GridThread(); i < n; i += GridThreads()) {
    const int64_t at = order[i];
    keys[i] = static_cast<uint32_t>(at / (dim.count * dim.inner) * dim.inner + at % dim.inner);
  }
}

// Rows lie one after the other in `order`, each sorted.
__global__ void IndicesKernel(SortArgs args, const uint32_t* order) {
  const AlongDim& dim = args.dim;
  for (int64_t i = GridThread(); i < dim.outer * args.take * dim.inner; i += GridThreads()) {
    const int64_t o = i / (args.take * dim.inner);
    const int64_t rank = i / dim.inner % args.take;
    const int64_t row = o * dim.inner + i % dim.inner;
    const int64_t at = order[row * dim.count + rank];
    args.indices[i] = at / dim.inner % dim.count;
  }
}

// The order of n elements, and passes over it.
struct Passes {
  explicit Passes(const SortArgs& args)
      : n(SortedElements(args)),
        words(SortWorkspace(args)),
        scratch(words.as<char>() + SortWords(args)) {
    keys = words.as<uint32_t>();
    sorted_keys = keys + n;
    order = sorted_keys + n;
    sorted_order = order + n;
  }
  // By `keys`, each below 2^bits.
  void Sort(int bits) {
    SortPairs("sort", {keys, sorted_keys, order, sorted_order, static_cast<int>(n), bits, scratch});
    std::swap(order, sorted_order);
  }
  int64_t n;
  Workspace words;
  char* scratch;
  uint32_t* keys;
  uint32_t* sorted_keys;
  uint32_t* order;
  uint32_t* sorted_order;
};

void SortCuda(const SortArgs& args) {
  const int64_t n = SortedElements(args);
  TESSERA_CHECK(n < (int64_t{1} << 31), "sort", n, " elements are more than 2^31");
  Passes passes(args);
  const LaunchShape grid{GridFor(n), kThreads};
  Launch("sort", grid, CountKernel, n, passes.order);
  DispatchCudaAll(args.dtype, "sort", [&](auto zero) {
    using T = decltype(zero);
    for (int shift = 0; shift < 8 * static_cast<int>(sizeof(T)); shift += 32) {
      Launch("sort", grid, KeysKernel<T>, static_cast<const T*>(args.x), n, args.descending, shift,
             passes.order, passes.keys);
      passes.Sort(32);
    }
  });
  const int64_t rows = args.dim.outer * args.dim.inner;
  if (rows > 1) {
    int bits = 1;
    while ((int64_t{1} << bits) < rows) ++bits;
    Launch("sort", grid, RowsKernel, args.dim, n, passes.order, passes.keys);
    passes.Sort(bits);
  }
  Launch("sort", {GridFor(args.dim.outer * args.take * args.dim.inner), kThreads}, IndicesKernel,
         args, passes.order);
}

TESSERA_REGISTER_KERNEL(sort_kernel, DeviceType::kCuda, SortCuda);

}  // namespace
}  // namespace tessera::cuda
