// SPDX-License-Identifier: Apache-2.0
// What operations do with their operands inside an AutocastScope (autograd/autocast.h). Outside
// one, every function here returns its argument.
#ifndef TESSERA_OPS_CAST_AUTOCAST_H_
#define TESSERA_OPS_CAST_AUTOCAST_H_

#include "autograd/autocast.h"
#include "ops/cast/cast.h"

namespace tessera {

inline bool Autocasting() { return AutocastDType() != DType::kFloat32; }

// An operand of a product: float32 becomes half precision, on the tape.
inline Tensor ForProduct(const Tensor& x) {
  return x.defined() && x.dtype() == DType::kFloat32 ? Cast(x, AutocastDType()) : x;
}

// An operand of a sum over many: half precision becomes float32, on the tape.
inline Tensor ForSum(const Tensor& x) {
  return Autocasting() && x.defined() && IsHalf(x.dtype()) ? Cast(x, DType::kFloat32) : x;
}

}  // namespace tessera

#endif  // TESSERA_OPS_CAST_AUTOCAST_H_
