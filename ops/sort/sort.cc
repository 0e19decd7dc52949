// SPDX-License-Identifier: Apache-2.0
#include "ops/sort/sort.h"

#include "ops/index/index.h"
#include "ops/sort/sort_kernel.h"

namespace tessera {
namespace {

TESSERA_REGISTER_WORKSPACE(sort_kernel, DeviceType::kCuda, SortWorkspace);

// The places of the first `take` elements of a dim in [0, ndim).
Tensor FirstInOrder(const Tensor& x, int dim, int64_t take, SortOrder order) {
  Shape shape = x.shape();
  shape[dim] = take;
  Tensor indices = Empty(shape, DType::kInt64, x.device());
  if (indices.numel() == 0) return indices;
  const Tensor xc = x.ContiguousCopy();
  sort_kernel.Launch(x.device(), {.dtype = x.dtype(),
                                  .dim = AlongDim(x.shape(), dim),
                                  .take = take,
                                  .descending = order == SortOrder::kDescending,
                                  .x = xc.raw_data(),
                                  .indices = static_cast<int64_t*>(indices.raw_data())});
  return indices;
}

}  // namespace

Tensor ArgSort(const Tensor& x, int dim, SortOrder order) {
  dim = x.shape().Normalize(dim, "argsort");
  return FirstInOrder(x, dim, x.size(dim), order);
}

Sorted Sort(const Tensor& x, int dim, SortOrder order) {
  const Tensor indices = ArgSort(x, dim, order);
  return {Gather(x, dim, indices), indices};
}

Sorted TopK(const Tensor& x, int64_t k, int dim, SortOrder order) {
  dim = x.shape().Normalize(dim, "top_k");
  TESSERA_CHECK(k >= 0 && k <= x.size(dim), "top_k", k, " elements of dim ", dim, " of ", x,
                ", which has ", x.size(dim));
  const Tensor indices = FirstInOrder(x, dim, k, order);
  return {Gather(x, dim, indices), indices};
}

}  // namespace tessera
