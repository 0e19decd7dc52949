// SPDX-License-Identifier: Apache-2.0
// Rotary positions: a block computes the angles of some tokens, in float64 as on the CPU, and turns
// them in its heads.
#include <algorithm>
#include <bit>

#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "core/cuda/shared.cuh"
#include "ops/rotary/rotary_kernel.h"

namespace tessera::cuda {
namespace {

struct Frequencies {
  double of_pair[kMostRotaryPairs];
};

// StoreVec of 16 bytes by name: of two, nvcc stores the elements of one one by one.
template <int kGroup, typename T>
__device__ __forceinline__ void StoreGroup(T* p, const Vec<T, kGroup>& v) {
  if constexpr (sizeof(v) == sizeof(uint4)) {
    __stwb(reinterpret_cast<uint4*>(p), std::bit_cast<uint4>(v));
  } else {
    StoreVec<kGroup>(p, v);
  }
}

constexpr int kBlock = 256;

// Of the positions that a block takes at once.
template <typename W>
struct Angles {
  W cosine[kMostRotaryPairs];
  W sine[kMostRotaryPairs];
  int64_t x_begin[kBlock];  // of their features in the first head
  int64_t y_begin[kBlock];
};

// A position is one part of a token: blockDim.y of them are taken at once, and blockDim.z heads.
// threadIdx.x is kGroup pairs of features, and kGroup of the features that stay as they are.
template <typename T, int kGroup>
__global__ void __launch_bounds__(kBlock)
    RotaryKernel(RotaryArgs args, const __grid_constant__ Frequencies frequencies) {
  using W = Wide<T>;
  auto& angles = BlockShared<Angles<W>>();
  const int pairs = static_cast<int>(args.pairs);
  const int64_t width = args.head_dim / args.parts;
  const int64_t positions = args.batch * args.parts * args.tokens;
  const int at_once = static_cast<int>(blockDim.y);
  const auto thread =
      static_cast<int>((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
  const auto threads = static_cast<int>(blockDim.x * blockDim.y * blockDim.z);
  for (int64_t first = int64_t{blockIdx.x} * at_once; first < positions;
       first += int64_t{gridDim.x} * at_once) {
    const int here = static_cast<int>(min(positions - first, int64_t{at_once}));
    __syncthreads();  // the last ones are used
    for (int i = thread; i < here * pairs; i += threads) {
      const int j = i / pairs;
      double sine;
      double cosine;
      sincos(static_cast<double>(args.positions[first + j]) * frequencies.of_pair[i - j * pairs],
             &sine, &cosine);
      angles.cosine[i] = static_cast<W>(args.scale * cosine);
      angles.sine[i] = static_cast<W>((args.inverse ? -args.scale : args.scale) * sine);
    }
    if (thread < here) {
      const int64_t token = (first + thread) % args.tokens;
      const int64_t part = (first + thread) / args.tokens % args.parts;
      const int64_t row = (first + thread) / (args.tokens * args.parts);
      angles.x_begin[thread] =
          row * args.x_batch_stride + token * args.x_token_stride + part * width;
      angles.y_begin[thread] =
          (row * args.heads * args.tokens + token) * args.head_dim + part * width;
    }
    __syncthreads();
    const int place = static_cast<int>(threadIdx.y);
    if (place >= here) continue;
    const W* const cosine = angles.cosine + place * pairs;
    const W* const sine = angles.sine + place * pairs;
    for (int64_t head = blockIdx.y * blockDim.z + threadIdx.z; head < args.heads;
         head += gridDim.y * blockDim.z) {
      const T* x =
          static_cast<const T*>(args.x) + angles.x_begin[place] + head * args.x_head_stride;
      T* y = static_cast<T*>(args.y) + angles.y_begin[place] + head * args.tokens * args.head_dim;
      const int64_t stride = int64_t{blockDim.x} * kGroup;
      for (int64_t p = threadIdx.x * kGroup; p < pairs; p += stride) {
        const int64_t low = args.interleaved ? 2 * p : p;
        const int64_t high = args.interleaved ? 2 * p + kGroup : pairs + p;
        Vec<T, 2 * kGroup> v;
        auto& halves = reinterpret_cast<Vec<T, kGroup>(&)[2]>(v);
        halves[0] = LoadVec<kGroup>(x + low);
        halves[1] = LoadVec<kGroup>(x + high);
        const auto turn = [&](T& a, T& b, int k) {
          const W c = cosine[p + k];
          const W s = sine[p + k];
          const W wide_a = ToWide(a);
          const W wide_b = ToWide(b);
          a = FromWide<T>(wide_a * c - wide_b * s);
          b = FromWide<T>(wide_a * s + wide_b * c);
        };
        if (args.interleaved) {
#pragma unroll
          for (int k = 0; k < kGroup; ++k) turn(v.v[2 * k], v.v[2 * k + 1], k);
        } else {
#pragma unroll
          for (int k = 0; k < kGroup; ++k) turn(v.v[k], v.v[k + kGroup], k);
        }
        StoreGroup<kGroup>(y + low, halves[0]);
        StoreGroup<kGroup>(y + high, halves[1]);
      }
      for (int64_t i = 2 * pairs + threadIdx.x * kGroup; i < width; i += stride) {
        StoreGroup<kGroup>(y + i, LoadVec<kGroup>(x + i));
      }
    }
  }
}

void RotaryCuda(const RotaryArgs& args) {
  Frequencies frequencies = {};
  std::copy_n(args.inverse_frequencies, args.pairs, frequencies.of_pair);
  const int64_t width = args.head_dim / args.parts;
  const int64_t positions = args.batch * args.parts * args.tokens;
  const int64_t processors = MultiprocessorCount();
  DispatchCudaFloat(args.dtype, "rotary", [&](auto zero) {
    using T = decltype(zero);
    const bool groups = AreAligned({args.x, args.y}) && (width | args.pairs | args.x_batch_stride |
                                                         args.x_head_stride | args.x_token_stride) %
                                                                kVec<T> ==
                                                            0;
    DispatchCudaGroup<kVec<T>>(groups, [&](auto group) {
      constexpr int kGroup = decltype(group)::value;
      const int64_t x =
          std::clamp<int64_t>(std::max(args.pairs, width - 2 * args.pairs) / kGroup, 1, kBlock);
      // Few tokens are spread over the processors, and then their heads.
      const int64_t y =
          std::clamp<int64_t>(positions / processors, 1, kBlock / std::max(x, args.pairs));
      const int64_t z = std::clamp<int64_t>(kBlock / (x * y), 1, std::min<int64_t>(args.heads, 64));
      const unsigned blocks = GridForRows((positions + y - 1) / y);
      const int64_t shares =
          std::clamp<int64_t>(2 * processors / blocks, 1, (args.heads + z - 1) / z);
      Launch("rotary",
             {dim3(blocks, static_cast<unsigned>(shares)),
              dim3(static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z))},
             RotaryKernel<T, kGroup>, args, frequencies);
    });
  });
}

TESSERA_REGISTER_KERNEL(rotary_kernel, DeviceType::kCuda, RotaryCuda);

}  // namespace
}  // namespace tessera::cuda
