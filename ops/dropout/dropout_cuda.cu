// SPDX-License-Identifier: Apache-2.0
// Dropout on the GPU: the bits of element i are those of its index in the unsharded tensor.
#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "core/cuda/random.cuh"
#include "core/cuda/strided_index.h"
#include "ops/dropout/dropout_kernel.h"

namespace tessera::cuda {
namespace {

template <typename T>
__global__ void DropoutStrided(StridedIndex<2> index, int64_t global_offset, DeviceKey device_key,
                               float threshold, Wide<T> scale, const T* x, T* out) {
  const DeviceKey key = Resolved(device_key);
  for (int64_t i = GridThread(); i < index.numel; i += GridThreads()) {
    int64_t at[2];
    index.Offsets(i, at);
    const uint64_t element = static_cast<uint64_t>(global_offset + at[1]);
    const uint32_t word = WordOf(RandomBlock(key, element / 4), element % 4);
    out[at[0]] = FromWide<T>(Keeps(word, threshold) ? ToWide(x[at[0]]) * scale : Wide<T>(0));
  }
}

// Four adjacent elements whose index is a multiple of four: one block of random words.
template <typename T>
__global__ void DropoutGroups(StridedIndex<2> index, int64_t global_offset, DeviceKey device_key,
                              float threshold, Wide<T> scale, const T* x, T* out) {
  const DeviceKey key = Resolved(device_key);
  for (int64_t i = GridThread(); i < index.numel; i += GridThreads()) {
    int64_t at[2];
    index.Offsets(i, at);
    const PhiloxWords words = RandomBlock(key, static_cast<uint64_t>(global_offset + at[1]) / 4);
    Vec<T, 4> v = LoadVec<4>(x + at[0]);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      v.v[k] = FromWide<T>(Keeps(words.v[k], threshold) ? ToWide(v.v[k]) * scale : Wide<T>(0));
    }
    StoreVec<4>(out + at[0], v);
  }
}

void DropoutCuda(const DropoutArgs& args) {
  const Shape plain = ContiguousStrides(args.shape);
  const StridedIndex<2> index(args.shape, {&plain, &args.global_strides});
  const DeviceKey key{args.key.hi, args.key.lo, args.key.stored};
  const float threshold = static_cast<float>(args.p) * 16777216.0f;
  DispatchCudaFloat(args.dtype, "dropout", [&](auto zero) {
    using T = decltype(zero);
    const T* x = static_cast<const T*>(args.x);
    T* out = static_cast<T*>(args.out);
    const auto scale = static_cast<Wide<T>>(1.0 / (1.0 - args.p));
    const bool groups = index.CanVectorize(4) && index.inner_stride(1) == 1 &&
                        args.global_offset % 4 == 0 && AreAligned({x, out}, 4 * sizeof(T));
    if (groups) {
      const StridedIndex<2> grouped = index.Vectorized(4);
      Launch("dropout", {GridFor(grouped.numel), kThreads}, DropoutGroups<T>, grouped,
             args.global_offset, key, threshold, scale, x, out);
    } else {
      Launch("dropout", {GridFor(index.numel), kThreads}, DropoutStrided<T>, index,
             args.global_offset, key, threshold, scale, x, out);
    }
  });
}

TESSERA_REGISTER_KERNEL(dropout_kernel, DeviceType::kCuda, DropoutCuda);

}  // namespace
}  // namespace tessera::cuda
