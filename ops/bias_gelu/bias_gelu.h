// gelu(x + bias) in one pass over memory, forward and backward.
//
//   Tensor y = BiasGelu(x_BTC, bias_C, GeluKind::kTanh);
//
// Equal to Gelu(Add(x, bias)) or GeluTanh(Add(x, bias)) (ops/elementwise), without the sum in
// memory. x [..., C] and bias [C] of one floating dtype. Gradients flow to both; the bias's is
// summed as in ops/reduction/sum.h. Shapes that do not fit throw Error.
#ifndef TESSERA_OPS_BIAS_GELU_BIAS_GELU_H_
#define TESSERA_OPS_BIAS_GELU_BIAS_GELU_H_

#include "core/tensor.h"

namespace tessera {

enum class GeluKind { kExact, kTanh };

Tensor BiasGelu(const Tensor& x, const Tensor& bias, GeluKind kind);

}  // namespace tessera

#endif  // TESSERA_OPS_BIAS_GELU_BIAS_GELU_H_
