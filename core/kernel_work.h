// SPDX-License-Identifier: Apache-2.0
// What a launch of a kernel has to do at least, from which its share of the machine's limits is
// computed (train/report/step_summary.h).
//
//   // beside the kernel's arguments, in their namespace
//   inline KernelWork WorkOf(const SoftmaxArgs& args) {
//     return {.bytes = 2 * BytesOfElements(args.dtype, args.rows * args.n)};
//   }
//
// Kernels whose arguments have no such function count as time alone. It is called while a profiler
// records.
#ifndef TESSERA_CORE_KERNEL_WORK_H_
#define TESSERA_CORE_KERNEL_WORK_H_

#include <cstdint>
#include <string>

#include "core/dtype.h"
#include "core/shape.h"

namespace tessera {

struct KernelWork {
  double flops = 0;                  // of products; a multiplication with an addition is two
  double bytes = 0;                  // read and written, each element of an operand once
  DType products = DType::kFloat32;  // what is multiplied
  std::string detail = {};           // which of the kernel's functions, or the sizes of a product
};

inline double BytesOfElements(DType dtype, int64_t elements) {
  return static_cast<double>(BytesOf(dtype, elements));
}
// Of an operand with these strides, 0 where its elements repeat.
inline double BytesOfView(DType dtype, const Shape& shape, const Shape& strides) {
  int64_t elements = 1;
  for (int d = 0; d < shape.ndim(); ++d) elements *= strides[d] == 0 ? 1 : shape[d];
  return BytesOfElements(dtype, elements);
}

}  // namespace tessera

#endif  // TESSERA_CORE_KERNEL_WORK_H_
