// SPDX-License-Identifier: Apache-2.0
// One threaded loop over fixed chunks of many arrays.
//
//   ChunkLoop loop(/*chunk=*/16384);
//   for (const UpdateTensor& t : tensors) loop.Add(t.n);
//   loop.Run([&](size_t array, int64_t begin, int64_t n, int64_t chunk) { ... });
//
// Chunks never cross from one array to the next and are numbered in order, so that partial results
// by chunk do not depend on the number of threads.
#ifndef TESSERA_OPTIM_CHUNK_LOOP_H_
#define TESSERA_OPTIM_CHUNK_LOOP_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/thread_pool.h"

namespace tessera::optim {

class ChunkLoop {
 public:
  explicit ChunkLoop(int64_t chunk) : chunk_(chunk) {}

  void Add(int64_t n) {
    sizes_.push_back(n);
    ends_.push_back(num_chunks() + (n + chunk_ - 1) / chunk_);
  }
  int64_t num_chunks() const { return ends_.empty() ? 0 : ends_.back(); }

  // body(array, begin, n, chunk): elements [begin, begin + n) of an array, the loop's chunk-th.
  template <typename Body>
  void Run(const Body& body) const {
    ParallelFor(num_chunks(), 1, [&](int64_t first, int64_t last) {
      for (int64_t chunk = first; chunk < last; ++chunk) {
        const auto array = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), chunk) -
                                               ends_.begin());
        const int64_t begin = (chunk - (array == 0 ? 0 : ends_[array - 1])) * chunk_;
        body(array, begin, std::min(chunk_, sizes_[array] - begin), chunk);
      }
    });
  }

 private:
  int64_t chunk_;
  std::vector<int64_t> sizes_;
  std::vector<int64_t> ends_;  // of each array, in chunks since the first
};

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_CHUNK_LOOP_H_
