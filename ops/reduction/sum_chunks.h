// SPDX-License-Identifier: Apache-2.0
// How a long sum is cut into chunks on the GPU, by its shape alone, and the workspace that the
// chunks' sums need. In plain C++, so that `meta:cuda` counts the same bytes.
#ifndef TESSERA_OPS_REDUCTION_SUM_CHUNKS_H_
#define TESSERA_OPS_REDUCTION_SUM_CHUNKS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ops/reduction/reduction_kernel.h"

namespace tessera {

// Rows of a chunk are taken in turns by this many lanes.
inline constexpr int kSumRowLanes = 8;

// What a vector is cut into.
inline constexpr int64_t kSumVectorChunk = 16384;

struct SumChunks {
  int64_t size;   // of the reduced dim; the last chunk may be shorter
  int64_t count;  // per sum
};

// The cut, which depends on the shape alone.
inline SumChunks SumChunksOf(const SumArgs& args) {
  constexpr int64_t kMostMatrixChunks = 64;
  constexpr int64_t kLeastRows = 64;
  int64_t size = kSumVectorChunk;
  if (args.inner > 1) {
    size = std::max(kLeastRows, (args.count + kMostMatrixChunks - 1) / kMostMatrixChunks);
    size = (size + kSumRowLanes - 1) / kSumRowLanes * kSumRowLanes;
  }
  return {size, (args.count + size - 1) / size};
}

// One sum per chunk, where there are several: in the widest type for vectors, in that which a chunk
// is summed in for matrices.
inline size_t SumWorkspace(const SumArgs& args) {
  const int64_t chunks = SumChunksOf(args).count;
  if (chunks <= 1) return 0;
  const bool wide = args.inner == 1 || args.dtype == DType::kFloat64 || args.dtype == DType::kInt64;
  return static_cast<size_t>(args.outer * chunks * args.inner) * (wide ? 8 : 4);
}

}  // namespace tessera

#endif  // TESSERA_OPS_REDUCTION_SUM_CHUNKS_H_
