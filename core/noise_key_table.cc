// SPDX-License-Identifier: Apache-2.0
#include "core/noise_key_table.h"

namespace tessera {

NoiseKeyTable::NoiseKeyTable(const Device& device, int64_t capacity)
    : on_device_(Zeros({capacity, 2}, DType::kInt64, device)) {}

const uint64_t* NoiseKeyTable::PlaceOf(uint64_t seed, std::string_view path, uint64_t micro_batch) {
  const auto [place, is_new] =
      places_.try_emplace({seed, std::string(path), micro_batch}, entries_.size());
  if (is_new) {
    TESSERA_CHECK(std::ssize(entries_) < on_device_.size(0), "noise keys", "more than ",
                  on_device_.size(0), " in one recorded graph");
    entries_.push_back({RandomKey::FromSeed(seed).With(path), micro_batch});
  }
  return static_cast<const uint64_t*>(on_device_.raw_data()) + 2 * place->second;
}

void NoiseKeyTable::Write(uint64_t step) {
  const auto count = std::ssize(entries_);
  if (count == 0) return;
  const Tensor keys = Empty({count, 2}, DType::kInt64);
  int64_t* out = keys.data<int64_t>();
  for (const Entry& entry : entries_) {
    const RandomKey key = entry.of_path.With(step).With(entry.micro_batch);
    *out++ = static_cast<int64_t>(key.hi);
    *out++ = static_cast<int64_t>(key.lo);
  }
  CopyInto(on_device_.AsStrided({count, 2}, {2, 1}, 0), keys);
}

}  // namespace tessera
