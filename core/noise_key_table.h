// SPDX-License-Identifier: Apache-2.0
// The keys of noise (core/random.h) in work that is recorded once and replayed at other steps.
//
//   NoiseKeyTable keys(device);
//   auto graph = RecordGraph(device, [&] {
//     const NoiseKeyTable::Scope scope(&keys);
//     ...                                     // NoiseKey(...) gives keys that lie in the table
//   });
//   keys.Write(step);                         // those of this step
//   graph->Replay();
//
// The bits are those of NoiseKey(seed, path, step, micro_batch), so a replayed step equals the one
// that is run.
#ifndef TESSERA_CORE_NOISE_KEY_TABLE_H_
#define TESSERA_CORE_NOISE_KEY_TABLE_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "core/execution_context.h"
#include "core/random.h"
#include "core/tensor.h"

namespace tessera {

class NoiseKeyTable : public NoiseKeySource {
 public:
  // At most `capacity` keys of different (seed, path, micro-batch): 16 bytes each on `device`.
  explicit NoiseKeyTable(const Device& device, int64_t capacity = 65536);

  // While it lives, NoiseKey on this thread gives keys of the table.
  using Scope = ExecutionModeScope<&ExecutionContext::noise_keys>;

  // The keys of `step` for the work that the device is given next.
  void Write(uint64_t step);

  // Where the device finds the key; throws Error when the table is full.
  const uint64_t* PlaceOf(uint64_t seed, std::string_view path, uint64_t micro_batch) override;

 private:
  struct Entry {
    RandomKey of_path;
    uint64_t micro_batch;
  };
  Tensor on_device_;  // int64 [capacity, 2]: hi, lo
  std::map<std::tuple<uint64_t, std::string, uint64_t>, size_t> places_;
  std::vector<Entry> entries_;
};

}  // namespace tessera

#endif  // TESSERA_CORE_NOISE_KEY_TABLE_H_
