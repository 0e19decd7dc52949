// SPDX-License-Identifier: Apache-2.0
// The workspace of index_add on the GPU, which sorts the indices. In plain C++, so that `meta:cuda`
// counts the same bytes.
#ifndef TESSERA_OPS_INDEX_PUT_WORKSPACE_H_
#define TESSERA_OPS_INDEX_PUT_WORKSPACE_H_

#include <cstddef>

#include "core/cuda/sort_pairs.h"
#include "ops/index/index_kernel.h"

namespace tessera {

// Keys and positions, as they come and sorted, then what the sort itself takes.
inline size_t PutWords(const PutArgs& args) {
  return 4 * static_cast<size_t>(args.count) * sizeof(uint32_t);
}
inline size_t PutWorkspace(const PutArgs& args) {
  return PutWords(args) + cuda::SortPairsScratch(args.count);
}

}  // namespace tessera

#endif  // TESSERA_OPS_INDEX_PUT_WORKSPACE_H_
