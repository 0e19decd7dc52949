// SPDX-License-Identifier: Apache-2.0
// SortPairs by the radix sort of CUB, which comes with the toolkit.
#include <cub/device/device_radix_sort.cuh>

#include "base/error.h"
#include "core/cuda/runtime.h"
#include "core/cuda/sort_pairs.h"
#include "core/cuda/stream.h"

namespace tessera::cuda {

void SortPairs(const char* operation, const SortPairsArgs& args) {
  const auto run = [&](void* scratch, size_t& bytes) {
    CheckCuda(
        cub::DeviceRadixSort::SortPairs(scratch, bytes, args.keys, args.sorted_keys, args.values,
                                        args.sorted_values, args.n, 0, args.bits, CurrentStream()),
        operation);
  };
  size_t bytes = 0;
  run(nullptr, bytes);
  const size_t given = SortPairsScratch(args.n);
  TESSERA_CHECK(bytes <= given, operation, "CUB asks for ", bytes, " bytes to sort ", args.n,
                " pairs, ", given, " are set aside");
  run(args.scratch, bytes);
}

}  // namespace tessera::cuda
