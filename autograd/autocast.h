// SPDX-License-Identifier: Apache-2.0
// Mixed precision by operation ("Mixed Precision Training", Micikevicius et al. 2018; PyTorch's
// autocast): parameters and whatever sums many numbers stay float32, products are computed in half
// precision.
//
//   {
//     const AutocastScope autocast(DType::kBFloat16);
//     loss = model.Run(batch, options).at("loss");
//   }
//   Backward(loss);                                  // outside; float16: GradScaler::ScaleLoss
//
// In the scope, on this thread:
//
//   in half precision  Matmul, Linear, Attention, convolutions: float32 operands are cast, results
//                      are halves
//   in float32         norms; CrossEntropy and Softmax compute in float32 whatever they are given
//   in the wider       Cat, LayerNormResidual, and elementwise functions as always
//   all others         in the dtype of what they are given
//
// A gradient has the dtype of what it belongs to: those of float32 weight matrices are summed in
// float32 from half-precision operands, and stay so. Weights are cast anew by each use and no copy
// outlives it, so that off-loading and ZeRO-3 keep their memory. float64 is left alone. Backward
// passes are no part of the scope that they are called in; what recomputation runs again, it runs
// as the first time.
#ifndef TESSERA_AUTOGRAD_AUTOCAST_H_
#define TESSERA_AUTOGRAD_AUTOCAST_H_

#include "core/execution_context.h"

namespace tessera {

class AutocastScope : public ExecutionModeScope<&ExecutionContext::products> {
 public:
  // bfloat16 or float16; float32 turns it off. Throws Error for any other.
  explicit AutocastScope(DType dtype);
};

// What float32 operands of products become on this thread; float32 outside any scope.
inline DType AutocastDType() { return ExecutionContext::Current().products; }

}  // namespace tessera

#endif  // TESSERA_AUTOGRAD_AUTOCAST_H_
