// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <vector>

#include "core/cuda/runtime.h"
#include "core/cuda/sort_pairs.h"
#include "core/cuda/stream.h"
#include "core/cuda/testing/emulation/work.h"

namespace tessera::cuda {

void SortPairs(const char* operation, const SortPairsArgs& args) {
  const auto sort = [args] {
    const uint32_t mask = args.bits >= 32 ? ~uint32_t{0} : (uint32_t{1} << args.bits) - 1;
    std::vector<int> order(static_cast<size_t>(args.n));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return (args.keys[a] & mask) < (args.keys[b] & mask); });
    for (int i = 0; i < args.n; ++i) {
      args.sorted_keys[i] = args.keys[order[static_cast<size_t>(i)]];
      args.sorted_values[i] = args.values[order[static_cast<size_t>(i)]];
    }
  };
  CheckCuda(emulation::Enqueue(CurrentStream(), sort), operation);
}

}  // namespace tessera::cuda
