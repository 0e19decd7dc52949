// SPDX-License-Identifier: Apache-2.0
// Random numbers as a function: a key says which stream, an index says which element.
//
//   const RandomKey key = RandomKey::FromSeed(seed).With("transformer.h.0.attn").With(step);
//   float u = UniformFloat(key, i);            // element i, in any order, on any rank
//   FillNormal(out, n, key, /*begin=*/0, {.mean = 0.0, .stddev = 0.02});
//
// Nothing advances a state, so the same bits come under recomputation, after a resume, with any
// number of threads, and on every layout: a shard asks for its elements by their index in the
// *unsharded* tensor (`FillNormalBox`). The numbers are made of integer arithmetic and of IEEE
// additions, multiplications, divisions and square roots alone, so every machine and device can
// make the same ones.
//
// Definition, for kernels that make their own (core/philox.h, core/normal_numbers.h): block b of a
// key is
//   Philox4x32(counter = {low(b), high(b), low(key.hi), high(key.hi)}, low(key.lo), high(key.lo))
// and element i of the 32-bit stream is word i % 4 of block i / 4. Deriving a key from another
// keys Philox with the old `lo` and counts with (value, old `hi`); the words give lo and hi.
#ifndef TESSERA_CORE_RANDOM_H_
#define TESSERA_CORE_RANDOM_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "core/philox.h"

namespace tessera {

// Names one stream of random numbers. Different seeds, paths, steps and their orders give
// unrelated streams; two 128-bit keys that collide are not to be expected.
struct RandomKey {
  uint64_t hi = 0;
  uint64_t lo = 0;
  // Where kernels of the device find hi and lo instead, in work that is recorded for other steps
  // (core/noise_key_table.h).
  const uint64_t* stored = nullptr;

  static RandomKey FromSeed(uint64_t seed);
  RandomKey With(uint64_t value) const;
  RandomKey With(std::string_view name) const;

  friend bool operator==(const RandomKey&, const RandomKey&) = default;
};

// The key of initialisation: FromSeed(seed).With(parameter_name).
RandomKey InitialisationKey(uint64_t seed, std::string_view parameter_name);

// The key of dropout and other noise in a forward pass:
// FromSeed(seed).With(module_path).With(step).With(micro_batch).
RandomKey NoiseKey(uint64_t seed, std::string_view module_path, uint64_t step,
                   uint64_t micro_batch);

// Says where on a device the NoiseKey of these lies, whatever the step. The thread's is in its
// execution context (core/execution_context.h).
class NoiseKeySource {
 public:
  virtual ~NoiseKeySource() = default;
  virtual const uint64_t* PlaceOf(uint64_t seed, std::string_view path, uint64_t micro_batch) = 0;
};

// Block `block` of the key's 32-bit stream: elements 4*block ... 4*block+3.
inline PhiloxWords RandomBlock(const RandomKey& key, uint64_t block) {
  return Philox4x32({{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                      static_cast<uint32_t>(key.hi), static_cast<uint32_t>(key.hi >> 32)}},
                    static_cast<uint32_t>(key.lo), static_cast<uint32_t>(key.lo >> 32));
}

// 32 uniform bits of element `index`.
inline uint32_t RandomBits(const RandomKey& key, uint64_t index) {
  return RandomBlock(key, index / 4).v[index % 4];
}

// In [0, 1): 24 bits of RandomBits(key, index).
inline float UniformFloat(const RandomKey& key, uint64_t index) {
  return UnitFloat(RandomBits(key, index));
}

// In [0, 1): 53 bits of words 2*(index % 2) and the next of block index / 2.
double UniformDouble(const RandomKey& key, uint64_t index);

// Standard normal by Box and Muller (1958), computed in float64: elements 4b...4b+3 come from
// block b, two from each pair of words. |value| < 6.8.
double NormalDouble(const RandomKey& key, uint64_t index);

// Numbers in [low, high), and of a normal distribution.
struct UniformRange {
  double low = 0.0;
  double high = 1.0;
};
struct NormalShape {
  double mean = 0.0;
  double stddev = 1.0;
};

// out[j] = element begin + j, for j in [0, n): low + (high - low) * UniformFloat, and
// mean + stddev * NormalDouble, both in float64 and rounded to float32 once; a uniform number that
// rounds up to `high` becomes the float below it. Threaded (core/thread_pool.h).
void FillUniform(float* out, int64_t n, const RandomKey& key, uint64_t begin,
                 const UniformRange& range);
void FillNormal(float* out, int64_t n, const RandomKey& key, uint64_t begin,
                const NormalShape& shape);

// A box of an unsharded row-major tensor of `global` sizes: [begin, begin + size) in every dim.
struct GlobalBox {
  std::span<const int64_t> global;
  std::span<const int64_t> begin;
  std::span<const int64_t> size;
};

// Fills `out` (row-major, sizes box.size) with what the whole tensor has in the box. Throws Error
// when the spans differ in length or the box does not lie inside.
void FillUniformBox(float* out, const GlobalBox& box, const RandomKey& key,
                    const UniformRange& range);
void FillNormalBox(float* out, const GlobalBox& box, const RandomKey& key,
                   const NormalShape& shape);

}  // namespace tessera

#endif  // TESSERA_CORE_RANDOM_H_
