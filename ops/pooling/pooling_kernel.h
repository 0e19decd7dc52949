// SPDX-License-Identifier: Apache-2.0
// What the kernels of pooling are given: contiguous planes [planes, h, w].
#ifndef TESSERA_OPS_POOLING_POOLING_KERNEL_H_
#define TESSERA_OPS_POOLING_POOLING_KERNEL_H_

#include <cstdint>

#include "core/dtype.h"
#include "core/kernel_table.h"

namespace tessera {

struct PoolDim {
  int64_t in;
  int64_t out;
  int64_t kernel;
  int64_t stride;
  int64_t padding;
  int64_t dilation;
};

// Of the largest elements of windows.
struct MaxPoolArgs {
  DType dtype;
  int64_t planes;
  PoolDim h;
  PoolDim w;
  const void* x;
  void* y;        // "="
  int32_t* from;  // of each element of y: which element of x's plane it is, "="
};
// Of their gradient.
struct MaxPoolGradArgs {
  DType dtype;
  int64_t planes;
  PoolDim h;
  PoolDim w;
  const void* dy;
  const int32_t* from;
  void* dx;  // "="
};

// One dim of a linear function of planes: element i of the result is the sum over k < count(i) of
// weights[first[i] + k] times element begin[i] + k, count(i) = first[i + 1] - first[i].
struct Blend {
  int64_t in;
  int64_t out;
  const int64_t* first;  // [out + 1]
  const int64_t* begin;  // [out]
  const double* weights;
};

// Both dims: y = the blend by h of rows, then that by w within the row.
struct BlendArgs {
  DType dtype;
  int64_t planes;
  Blend h;
  Blend w;
  const void* x;
  void* y;  // "="
};

inline double BytesOfPlanes(DType dtype, int64_t planes, const PoolDim& h, const PoolDim& w) {
  return BytesOfElements(dtype, planes * (h.in * w.in + h.out * w.out)) +
         BytesOfElements(DType::kInt32, planes * h.out * w.out);
}
inline KernelWork WorkOf(const MaxPoolArgs& args) {
  return {.bytes = BytesOfPlanes(args.dtype, args.planes, args.h, args.w)};
}
inline KernelWork WorkOf(const MaxPoolGradArgs& args) {
  return {.bytes = BytesOfPlanes(args.dtype, args.planes, args.h, args.w)};
}
inline KernelWork WorkOf(const BlendArgs& args) {
  return {.bytes = BytesOfElements(
              args.dtype, args.planes * (args.h.in * args.w.in + args.h.out * args.w.out))};
}

inline KernelTable<MaxPoolArgs> max_pool_kernel{"max_pool"};
inline KernelTable<MaxPoolGradArgs> max_pool_grad_kernel{"max_pool gradient"};
inline KernelTable<BlendArgs> blend_kernel{"blend of planes"};

}  // namespace tessera

#endif  // TESSERA_OPS_POOLING_POOLING_KERNEL_H_
