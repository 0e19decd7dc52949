// SPDX-License-Identifier: Apache-2.0
#include "core/random.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "core/execution_context.h"
#include "core/normal_numbers.h"
#include "core/thread_pool.h"

namespace tessera {
namespace {

constexpr int64_t kGrain = 4096;

float ToUniform(uint32_t word, const UniformRange& range) {
  const float value =
      static_cast<float>(range.low + (range.high - range.low) * double{UnitFloat(word)});
  const float high = static_cast<float>(range.high);
  if (value < high || range.high <= range.low) return value;
  return std::nextafter(high, -std::numeric_limits<float>::infinity());
}

void NormalValues(const PhiloxWords& words, const NormalShape& shape, float out[4]) {
  double normal[4];
  NormalBlock(words, normal);
  for (int i = 0; i < 4; ++i) out[i] = static_cast<float>(shape.mean + shape.stddev * normal[i]);
}

void UniformValues(const PhiloxWords& words, const UniformRange& range, float out[4]) {
  for (int i = 0; i < 4; ++i) out[i] = ToUniform(words.v[i], range);
}

// Writes elements begin ... begin+n-1, whole blocks at a time.
template <typename BlockValues>
void FillRun(float* out, int64_t n, const RandomKey& key, uint64_t begin, BlockValues values) {
  float four[4];
  for (int64_t i = 0; i < n;) {
    const uint64_t index = begin + static_cast<uint64_t>(i);
    const int first = static_cast<int>(index % 4);
    const int count = static_cast<int>(std::min<int64_t>(4 - first, n - i));
    values(RandomBlock(key, index / 4), four);
    std::copy_n(four + first, count, out + i);
    i += count;
  }
}

template <typename BlockValues>
void Fill(float* out, int64_t n, const RandomKey& key, uint64_t begin, BlockValues values) {
  ParallelFor(n, kGrain, [&](int64_t from, int64_t to) {
    FillRun(out + from, to - from, key, begin + static_cast<uint64_t>(from), values);
  });
}

template <typename BlockValues>
void FillBox(float* out, const GlobalBox& box, const RandomKey& key, BlockValues values) {
  const size_t ndim = box.global.size();
  TESSERA_CHECK(box.begin.size() == ndim && box.size.size() == ndim, "FillBox",
                "sizes of different length: ", ndim, ", ", box.begin.size(), ", ", box.size.size());
  for (size_t d = 0; d < ndim; ++d) {
    TESSERA_CHECK(box.begin[d] >= 0 && box.size[d] >= 0 && box.size[d] <= box.global[d] &&
                      box.begin[d] <= box.global[d] - box.size[d],
                  "FillBox", "dim ", d, ": [", box.begin[d], ", +", box.size[d],
                  ") does not lie in ", box.global[d]);
  }
  // Trailing dims that the box spans whole, and the one before them, are one run.
  size_t run_dim = ndim;
  while (run_dim > 0) {
    --run_dim;
    if (box.size[run_dim] != box.global[run_dim]) break;
  }
  std::vector<int64_t> strides(ndim);
  int64_t origin = 0;
  for (int64_t d = static_cast<int64_t>(ndim) - 1, stride = 1; d >= 0; --d) {
    strides[d] = stride;
    origin += box.begin[d] * stride;
    stride *= box.global[d];
  }
  int64_t rows = 1;
  int64_t run = 1;
  for (size_t d = 0; d < ndim; ++d) (d < run_dim ? rows : run) *= box.size[d];
  if (rows == 0 || run == 0) return;
  const auto begin_of_row = [&](int64_t row) {
    int64_t index = origin;
    for (size_t d = run_dim; d-- > 0;) {
      index += row % box.size[d] * strides[d];
      row /= box.size[d];
    }
    return static_cast<uint64_t>(index);
  };
  if (rows == 1) {
    Fill(out, run, key, begin_of_row(0), values);
    return;
  }
  ParallelFor(rows, std::max<int64_t>(1, kGrain / run), [&](int64_t from, int64_t to) {
    for (int64_t row = from; row < to; ++row) {
      FillRun(out + row * run, run, key, begin_of_row(row), values);
    }
  });
}

}  // namespace

RandomKey RandomKey::FromSeed(uint64_t seed) {
  // "tessera" keeps these streams apart from other users of Philox with small keys.
  return RandomKey{0, 0x0061726573736574ull}.With(seed);
}

RandomKey RandomKey::With(uint64_t value) const {
  TESSERA_CHECK(stored == nullptr, "random key", "nothing is derived from a key of a device");
  const PhiloxWords w = RandomBlock(*this, value);
  return RandomKey{(uint64_t{w.v[3]} << 32) | w.v[2], (uint64_t{w.v[1]} << 32) | w.v[0]};
}

RandomKey RandomKey::With(std::string_view name) const {
  // The bit-flipped length goes first: no name can equal a chain of small numbers or of others.
  RandomKey key = With(~static_cast<uint64_t>(name.size()));
  for (size_t i = 0; i < name.size(); i += 8) {
    uint64_t bytes = 0;
    for (size_t j = 0; j < 8 && i + j < name.size(); ++j) {
      bytes |= uint64_t{static_cast<uint8_t>(name[i + j])} << (8 * j);
    }
    key = key.With(bytes);
  }
  return key;
}

RandomKey InitialisationKey(uint64_t seed, std::string_view parameter_name) {
  return RandomKey::FromSeed(seed).With(parameter_name);
}

RandomKey NoiseKey(uint64_t seed, std::string_view module_path, uint64_t step,
                   uint64_t micro_batch) {
  RandomKey key = RandomKey::FromSeed(seed).With(module_path).With(step).With(micro_batch);
  NoiseKeySource* const table = ExecutionContext::Current().noise_keys;
  if (table != nullptr) key.stored = table->PlaceOf(seed, module_path, micro_batch);
  return key;
}

double UniformDouble(const RandomKey& key, uint64_t index) {
  const PhiloxWords w = RandomBlock(key, index / 2);
  const int first = 2 * static_cast<int>(index % 2);
  const uint64_t bits = (uint64_t{w.v[first + 1]} << 32) | w.v[first];
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

double NormalDouble(const RandomKey& key, uint64_t index) {
  double four[4];
  NormalBlock(RandomBlock(key, index / 4), four);
  return four[index % 4];
}

void FillUniform(float* out, int64_t n, const RandomKey& key, uint64_t begin,
                 const UniformRange& range) {
  Fill(out, n, key, begin,
       [&](const PhiloxWords& words, float four[4]) { UniformValues(words, range, four); });
}

void FillNormal(float* out, int64_t n, const RandomKey& key, uint64_t begin,
                const NormalShape& shape) {
  Fill(out, n, key, begin,
       [&](const PhiloxWords& words, float four[4]) { NormalValues(words, shape, four); });
}

void FillUniformBox(float* out, const GlobalBox& box, const RandomKey& key,
                    const UniformRange& range) {
  FillBox(out, box, key,
          [&](const PhiloxWords& words, float four[4]) { UniformValues(words, range, four); });
}

void FillNormalBox(float* out, const GlobalBox& box, const RandomKey& key,
                   const NormalShape& shape) {
  FillBox(out, box, key,
          [&](const PhiloxWords& words, float four[4]) { NormalValues(words, shape, four); });
}

}  // namespace tessera
