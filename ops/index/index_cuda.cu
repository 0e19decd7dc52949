// Look-ups and their gradients. What is added to one row is added in index order, as on the CPU:
// indices are sorted (stably), and each run of equal ones is one block's.
#include <cstdint>
#include <cub/device/device_radix_sort.cuh>

#include "core/cuda/allocator.h"
#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "ops/index/index_kernel.h"

namespace tessera::cuda {
namespace {

// `inner` counts words here.
template <typename Word>
__global__ void TakeKernel(TakeArgs args, int64_t inner) {
  const int64_t total = args.outer * args.count * inner;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  const Word* x = static_cast<const Word*>(args.x);
  Word* out = static_cast<Word*>(args.out);
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < total; i += step) {
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
    TakeKernel<Word>
        <<<GridFor(args.outer * args.count * inner), kThreads, 0, CurrentStream()>>>(args, inner);
  };
  const auto fits = [&](size_t n) {
    return bytes % static_cast<int64_t>(n) == 0 && IsAligned(args.x, n) && IsAligned(args.out, n);
  };
  if (fits(16)) {
    launch(uint4{});
  } else if (fits(4)) {
    launch(uint32_t{});
  } else if (fits(2)) {
    launch(uint16_t{});
  } else {
    launch(uint8_t{});
  }
  CheckLaunch("index_select");
}

// keys[j] = the row that indices[j] names, `size` where it is left out; order[j] = j.
__global__ void KeysKernel(PutArgs args, uint32_t* keys, uint32_t* order) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t j = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; j < args.count; j += step) {
    const int64_t at = args.indices[j] - args.begin;
    const bool out = at < 0 || at >= args.size || args.indices[j] == args.skip;
    keys[j] = static_cast<uint32_t>(out ? args.size : at);
    order[j] = static_cast<uint32_t>(j);
  }
}

// A block per run of equal keys, for each of outer; threads share out the columns.
template <typename To, typename From>
__global__ void PutKernel(PutArgs args, const uint32_t* keys, const uint32_t* order) {
  using W = Wide<To>;
  const int64_t total = args.outer * args.count;
  for (int64_t i = blockIdx.x; i < total; i += gridDim.x) {
    const int64_t o = i / args.count;
    const int64_t begin = i - o * args.count;
    const uint32_t key = keys[begin];
    if (key >= args.size || (begin > 0 && keys[begin - 1] == key)) continue;
    To* x = static_cast<To*>(args.x) + (o * args.size + key) * args.inner;
    const From* grad = static_cast<const From*>(args.grad) + o * args.count * args.inner;
    for (int64_t column = threadIdx.x; column < args.inner; column += blockDim.x) {
      To sum = x[column];
      for (int64_t j = begin; j < args.count && keys[j] == key; ++j) {
        const From g = grad[int64_t{order[j]} * args.inner + column];
        sum = FromWide<To>(ToWide(sum) + static_cast<W>(ToWide(g)));
      }
      x[column] = sum;
    }
  }
}

void PutCuda(const PutArgs& args) {
  TESSERA_CHECK(args.count < (int64_t{1} << 31) && args.size < (int64_t{1} << 31), "index_add",
                args.count, " indices into ", args.size, " rows are more than 2^31");
  const auto n = static_cast<size_t>(args.count);
  const Workspace words(4 * n * sizeof(uint32_t));
  uint32_t* keys = words.as<uint32_t>();
  uint32_t* order = keys + n;
  uint32_t* sorted_keys = order + n;
  uint32_t* sorted_order = sorted_keys + n;
  KeysKernel<<<GridFor(args.count), kThreads, 0, CurrentStream()>>>(args, keys, order);
  CheckLaunch("index_add");
  int bits = 1;
  while ((int64_t{1} << bits) <= args.size) ++bits;
  size_t bytes = 0;
  CheckCuda(cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, sorted_keys, order, sorted_order,
                                            static_cast<int>(n), 0, bits, CurrentStream()),
            "index_add");
  const Workspace scratch(bytes);
  CheckCuda(
      cub::DeviceRadixSort::SortPairs(scratch.data(), bytes, keys, sorted_keys, order, sorted_order,
                                      static_cast<int>(n), 0, bits, CurrentStream()),
      "index_add");
  const auto launch = [&](auto to, auto from) {
    using To = decltype(to);
    using From = decltype(from);
    PutKernel<To, From><<<GridForRows(args.outer * args.count), ThreadsForRow(args.inner, 2), 0,
                          CurrentStream()>>>(args, sorted_keys, sorted_order);
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
  CheckLaunch("index_add");
}

template <typename Word>
__global__ void GatherKernel(GatherArgs args) {
  const int64_t total = args.outer * args.count * args.inner;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < total; i += step) {
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
  const auto launch = [&](auto word) {
    GatherKernel<decltype(word)>
        <<<GridFor(args.outer * args.count * args.inner), kThreads, 0, CurrentStream()>>>(args);
  };
  switch (DTypeSize(args.dtype)) {
    case 1:
      launch(uint8_t{});
      break;
    case 2:
      launch(uint16_t{});
      break;
    case 4:
      launch(uint32_t{});
      break;
    default:
      launch(uint64_t{});
  }
  CheckLaunch("gather");
}

// A thread owns a column and adds in index order.
template <typename T>
__global__ void ScatterAddKernel(GatherArgs args) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; c < args.outer * args.inner;
       c += step) {
    const int64_t o = c / args.inner;
    const int64_t column = c - o * args.inner;
    for (int64_t j = 0; j < args.count; ++j) {
      const int64_t p = (o * args.count + j) * args.inner + column;
      const int64_t at = args.index[p];
      if (at < 0 || at >= args.size) continue;
      T* x = static_cast<T*>(args.x) + (o * args.size + at) * args.inner + column;
      *x = FromWide<T>(ToWide(*x) + ToWide(static_cast<const T*>(args.picked)[p]));
    }
  }
}

void ScatterAddCuda(const GatherArgs& args) {
  DispatchCudaFloat(args.dtype, "scatter_add", [&](auto zero) {
    ScatterAddKernel<decltype(zero)>
        <<<GridFor(args.outer * args.inner), kThreads, 0, CurrentStream()>>>(args);
  });
  CheckLaunch("scatter_add");
}

TESSERA_REGISTER_KERNEL(take_kernel, DeviceType::kCuda, TakeCuda);
TESSERA_REGISTER_KERNEL(put_kernel, DeviceType::kCuda, PutCuda);
TESSERA_REGISTER_KERNEL(gather_kernel, DeviceType::kCuda, GatherCuda);
TESSERA_REGISTER_KERNEL(scatter_add_kernel, DeviceType::kCuda, ScatterAddCuda);

}  // namespace
}  // namespace tessera::cuda
