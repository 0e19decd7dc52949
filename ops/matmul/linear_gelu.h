// SPDX-License-Identifier: Apache-2.0
// Two linear layers with GELU (its approximation by tanh, GPT-2's `gelu_new`) between them, in as
// few passes over memory as the device allows:
//
//   const Gelued h = LinearGelu(x_BTC, up, up_bias, LinearLayout::kInOut);
//   Tensor y_BTC = LinearOfGelu(h, down, down_bias, LinearLayout::kInOut);
//
// Equal to Linear(GeluTanh(Linear(x, up, ...)), down, ...), on the CPU bit for bit. On a GPU the
// first product applies bias and GELU as it is written, and the gradient of the second product's
// input is multiplied by GELU's derivative as it is written (cuBLASLt's epilogues; GELU is then
// taken of the sum before it is rounded to half precision). float64, inner sizes that are not
// multiples of 8 and products that the library declines take the steps one by one.
//
// Shapes, dtypes, gradients and errors are Linear's (ops/matmul/matmul.h).
#ifndef TESSERA_OPS_MATMUL_LINEAR_GELU_H_
#define TESSERA_OPS_MATMUL_LINEAR_GELU_H_

#include <vector>

#include "core/tensor.h"
#include "ops/matmul/matmul.h"

namespace tessera {

// GeluTanh(input) together with `input`, through which its gradient flows.
class Gelued {
 public:
  // [..., inner]. Undefined where nothing takes part in differentiation: then it is not kept.
  const Tensor& input() const { return input_; }
  // [..., inner], off the tape.
  const Tensor& value() const { return value_; }
  // What takes part in differentiation.
  std::vector<Tensor> tensors() const { return {input_}; }

 private:
  friend Gelued LinearGelu(const Tensor& x, const Tensor& weight, const Tensor& bias,
                           LinearLayout layout);
  Tensor input_;
  Tensor value_;
};

Gelued LinearGelu(const Tensor& x, const Tensor& weight, const Tensor& bias, LinearLayout layout);
Tensor LinearOfGelu(const Gelued& x, const Tensor& weight, const Tensor& bias, LinearLayout layout);

}  // namespace tessera

#endif  // TESSERA_OPS_MATMUL_LINEAR_GELU_H_
