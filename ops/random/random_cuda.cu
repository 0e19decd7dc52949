// SPDX-License-Identifier: Apache-2.0
// Random numbers on the GPU, the bits that the CPU makes: a thread takes an element in turns, or
// four adjacent ones that share a block of words.
#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "core/cuda/random.cuh"
#include "core/cuda/strided_index.h"
#include "core/normal_numbers.h"
#include "ops/random/random_kernel.h"

namespace tessera::cuda {
namespace {

// The four numbers of a block of words.
template <bool kNormal>
__device__ __forceinline__ Vec<float, 4> NumbersOf(const PhiloxWords& words) {
  Vec<float, 4> four;
  if constexpr (kNormal) {
    double normal[4];
    NormalBlock(words, normal);
    for (int i = 0; i < 4; ++i)
      four.v[i] = static_cast<float>(0.0 + normal[i]);  // as the CPU: no -0
  } else {
    for (int i = 0; i < 4; ++i) four.v[i] = UnitFloat(words.v[i]);
  }
  return four;
}

template <bool kNormal>
__global__ void RandomStrided(StridedIndex<2> index, int64_t global_offset, DeviceKey device_key,
                              float* out) {
  const DeviceKey key = Resolved(device_key);
  for (int64_t i = GridThread(); i < index.numel; i += GridThreads()) {
    int64_t at[2];
    index.Offsets(i, at);
    const uint64_t element = static_cast<uint64_t>(global_offset + at[1]);
    const Vec<float, 4> four = NumbersOf<kNormal>(RandomBlock(key, element / 4));
    const int place = static_cast<int>(element % 4);
    out[at[0]] = place == 0   ? four.v[0]
                 : place == 1 ? four.v[1]
                 : place == 2 ? four.v[2]
                              : four.v[3];
  }
}

// Groups of four whose first index is a multiple of four.
template <bool kNormal>
__global__ void RandomGroups(StridedIndex<2> index, int64_t global_offset, DeviceKey device_key,
                             float* out) {
  const DeviceKey key = Resolved(device_key);
  for (int64_t i = GridThread(); i < index.numel; i += GridThreads()) {
    int64_t at[2];
    index.Offsets(i, at);
    const auto block = static_cast<uint64_t>(global_offset + at[1]) / 4;
    StoreVec<4>(out + at[0], NumbersOf<kNormal>(RandomBlock(key, block)));
  }
}

template <bool kNormal>
void Run(const RandomArgs& args) {
  const Shape plain = ContiguousStrides(args.size);
  const Shape global = ContiguousStrides(args.global);
  int64_t offset = 0;
  for (int d = 0; d < global.ndim(); ++d) offset += args.begin[d] * global[d];
  const StridedIndex<2> index(args.size, {&plain, &global});
  const DeviceKey key{args.key.hi, args.key.lo, args.key.stored};
  const bool groups = index.CanVectorize(4) && index.inner_stride(1) == 1 && offset % 4 == 0 &&
                      AreAligned({args.out});
  if (groups) {
    const StridedIndex<2> grouped = index.Vectorized(4);
    Launch("random", {GridFor(grouped.numel), kThreads}, RandomGroups<kNormal>, grouped, offset,
           key, args.out);
  } else {
    Launch("random", {GridFor(index.numel), kThreads}, RandomStrided<kNormal>, index, offset, key,
           args.out);
  }
}

void RandomCuda(const RandomArgs& args) {
  if (args.normal) {
    Run<true>(args);
  } else {
    Run<false>(args);
  }
}

TESSERA_REGISTER_KERNEL(random_kernel, DeviceType::kCuda, RandomCuda);

}  // namespace
}  // namespace tessera::cuda
