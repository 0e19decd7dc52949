// SPDX-License-Identifier: Apache-2.0
// Changing dtype or device, on the tape.
//
//   Tensor logits = Cast(hidden_bf16, DType::kFloat32);
//   Tensor on_device = ToDevice(batch, Device::Cuda(0));
//
// Cast takes any dtype to any other (bool: not zero; to an integer: towards zero) and returns x
// itself where nothing changes. Between floating dtypes the gradient is cast back; an integer
// result takes no part in differentiation.
#ifndef TESSERA_OPS_CAST_CAST_H_
#define TESSERA_OPS_CAST_CAST_H_

#include "core/tensor.h"

namespace tessera {

Tensor Cast(const Tensor& x, DType dtype);
Tensor ToDevice(const Tensor& x, const Device& device);

}  // namespace tessera

#endif  // TESSERA_OPS_CAST_CAST_H_
