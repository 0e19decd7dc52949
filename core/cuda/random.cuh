// SPDX-License-Identifier: Apache-2.0
// The random bits of core/random.h in kernels. Included by .cu files only.
#ifndef TESSERA_CORE_CUDA_RANDOM_CUH_
#define TESSERA_CORE_CUDA_RANDOM_CUH_

#include <cstdint>

#include "core/philox.h"

namespace tessera::cuda {

// A RandomKey as a kernel's argument; bits are drawn from a resolved one.
struct DeviceKey {
  uint64_t hi;
  uint64_t lo;
  const uint64_t* stored;  // where hi and lo are to be read instead; null otherwise
};

__device__ __forceinline__ DeviceKey Resolved(const DeviceKey& key) {
  return key.stored == nullptr ? key : DeviceKey{key.stored[0], key.stored[1], nullptr};
}

// Elements 4 * block ... 4 * block + 3 of the key's stream.
__device__ __forceinline__ PhiloxWords RandomBlock(const DeviceKey& key, uint64_t block) {
  return Philox4x32(
      PhiloxWords{{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                   static_cast<uint32_t>(key.hi), static_cast<uint32_t>(key.hi >> 32)}},
      static_cast<uint32_t>(key.lo), static_cast<uint32_t>(key.lo >> 32));
}

// A word of a block without indexing registers.
__device__ __forceinline__ uint32_t WordOf(const PhiloxWords& words, uint32_t i) {
  return i == 0 ? words.v[0] : i == 1 ? words.v[1] : i == 2 ? words.v[2] : words.v[3];
}

// Dropout keeps an element whose upper 24 bits, as an integer, reach p * 2^24.
__device__ __forceinline__ bool Keeps(uint32_t word, float threshold) {
  return static_cast<float>(word >> 8) >= threshold;
}

}  // namespace tessera::cuda

#endif  // TESSERA_CORE_CUDA_RANDOM_CUH_
