// SPDX-License-Identifier: Apache-2.0
// Sorting along a dim, and the largest elements.
//
//   const Sorted best = TopK(logits_BV, 5, -1);                      // [B, 5], largest first
//   const Sorted sorted = Sort(x_BT, /*dim=*/1);                     // smallest first
//   Tensor order = ArgSort(scores_N, 0, SortOrder::kDescending);     // int64 [N]
//
// Any dtype. Sorting is stable: of equal elements the first comes first, in either order. NaN
// counts as the largest, -0 equals 0. Gradients flow through the values. A dim out of range, and a
// k outside of [0, size(dim)], throw Error.
#ifndef TESSERA_OPS_SORT_SORT_H_
#define TESSERA_OPS_SORT_SORT_H_

#include <cstdint>

#include "core/tensor.h"

namespace tessera {

enum class SortOrder { kAscending, kDescending };

struct Sorted {
  Tensor values;
  Tensor indices;  // int64: values = Gather(x, dim, indices)
};

Sorted Sort(const Tensor& x, int dim, SortOrder order = SortOrder::kAscending);
// The first k of Sort in that order.
Sorted TopK(const Tensor& x, int64_t k, int dim, SortOrder order = SortOrder::kDescending);
// Sort's indices.
Tensor ArgSort(const Tensor& x, int dim, SortOrder order = SortOrder::kAscending);

}  // namespace tessera

#endif  // TESSERA_OPS_SORT_SORT_H_
