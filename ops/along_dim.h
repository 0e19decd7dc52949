// SPDX-License-Identifier: Apache-2.0
// One dim of a contiguous tensor as kernels see it: the middle of [outer, count, inner].
//
//   const AlongDim along(x.shape(), dim);   // element i of column (o, c): (o * count + i) * inner
//   + c
#ifndef TESSERA_OPS_ALONG_DIM_H_
#define TESSERA_OPS_ALONG_DIM_H_

#include <cstdint>

#include "core/shape.h"

namespace tessera {

struct AlongDim {
  AlongDim() = default;
  // 0 <= dim < ndim.
  AlongDim(const Shape& shape, int dim) : count(shape[dim]) {
    for (int d = 0; d < dim; ++d) outer *= shape[d];
    for (int d = dim + 1; d < shape.ndim(); ++d) inner *= shape[d];
  }
  int64_t outer = 1;
  int64_t count = 0;
  int64_t inner = 1;
};

}  // namespace tessera

#endif  // TESSERA_OPS_ALONG_DIM_H_
