// The random bits of core/random.h in kernels. Included by .cu files only.
#ifndef TESSERA_CORE_CUDA_RANDOM_CUH_
#define TESSERA_CORE_CUDA_RANDOM_CUH_

#include <cstdint>

#include "core/philox.h"

namespace tessera::cuda {

struct DeviceKey {
  uint32_t hi_low;
  uint32_t hi_high;
  uint32_t lo_low;
  uint32_t lo_high;
};

__host__ __device__ inline DeviceKey KeyOf(uint64_t hi, uint64_t lo) {
  return {static_cast<uint32_t>(hi), static_cast<uint32_t>(hi >> 32), static_cast<uint32_t>(lo),
          static_cast<uint32_t>(lo >> 32)};
}

// Elements 4 * block ... 4 * block + 3 of the key's stream.
__device__ __forceinline__ PhiloxWords RandomBlock(const DeviceKey& key, uint64_t block) {
  return Philox4x32(PhiloxWords{{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                                 key.hi_low, key.hi_high}},
                    key.lo_low, key.lo_high);
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
