// SPDX-License-Identifier: Apache-2.0
// The gated activation of Llama's feed-forward part (Shazeer 2020, "GLU variants", SwiGLU).
//
//   Tensor inner = SwiGlu(gate_BTF, up_BTF);          // silu(gate) * up
//
// silu(x) = x / (1 + e^-x). Both of one shape, floating dtype and device; half precision is
// computed in float32 and rounded once. Equals Mul(Silu(gate), up) but for that rounding, in one
// pass over memory, as does the gradient, which flows to both; silu(gate) is not kept for it.
// Misuse throws Error.
#ifndef TESSERA_OPS_SWIGLU_SWIGLU_H_
#define TESSERA_OPS_SWIGLU_SWIGLU_H_

#include "core/tensor.h"

namespace tessera {

Tensor SwiGlu(const Tensor& gate, const Tensor& up);

}  // namespace tessera

#endif  // TESSERA_OPS_SWIGLU_SWIGLU_H_
