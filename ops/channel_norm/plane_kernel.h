// SPDX-License-Identifier: Apache-2.0
// What the kernels over planes are given: a plane is the `n` adjacent elements of a channel of a
// picture. Coefficients are [coefficients] in AccumulateDType(dtype); plane p has those of index
// p % coefficients. All results are written with "=".
#ifndef TESSERA_OPS_CHANNEL_NORM_PLANE_KERNEL_H_
#define TESSERA_OPS_CHANNEL_NORM_PLANE_KERNEL_H_

#include <cstdint>

#include "core/dtype.h"
#include "core/kernel_table.h"

namespace tessera {

// Of each plane: its mean, and the sum of squares of what its elements are beside that.
struct PlaneMomentsArgs {
  DType dtype;
  int64_t planes;
  int64_t n;  // >= 1
  const void* x;
  void* mean;     // [planes], AccumulateDType
  void* squares;  // likewise
};

// Of each plane: the sum of z, and that of z (x - center).
struct PlaneSumsArgs {
  DType dtype;
  int64_t planes;
  int64_t n;
  int64_t coefficients;
  const void* x;
  const void* z;
  const void* center;
  void* sums;      // [planes], AccumulateDType
  void* products;  // likewise
};

// out = a z + b (x - center) + d; of no z, without its term, likewise of no x; no d is 0.
struct PlaneAffineArgs {
  DType dtype;
  int64_t planes;
  int64_t n;
  int64_t coefficients;
  const void* z;
  const void* a;
  const void* x;
  const void* b;
  const void* center;
  const void* d;
  void* out;
};

inline KernelWork WorkOf(const PlaneMomentsArgs& args) {
  return {.bytes = BytesOfElements(args.dtype, args.planes * args.n)};
}
inline KernelWork WorkOf(const PlaneSumsArgs& args) {
  return {.bytes = 2 * BytesOfElements(args.dtype, args.planes * args.n)};
}
inline KernelWork WorkOf(const PlaneAffineArgs& args) {
  const int operands = 1 + (args.z != nullptr) + (args.x != nullptr);
  return {.bytes = operands * BytesOfElements(args.dtype, args.planes * args.n)};
}

inline KernelTable<PlaneMomentsArgs> plane_moments_kernel{"moments of planes"};
inline KernelTable<PlaneSumsArgs> plane_sums_kernel{"sums over planes"};
inline KernelTable<PlaneAffineArgs> plane_affine_kernel{"planes scaled and shifted"};

}  // namespace tessera

#endif  // TESSERA_OPS_CHANNEL_NORM_PLANE_KERNEL_H_
