// SPDX-License-Identifier: Apache-2.0
// Matrix products off the tape: what Matmul, Linear and their gradients are made of. Half precision
// is summed in float32; strided operands are read where they are.
//
//   Tensor dx = Product(dy, w);
//   WeightGradient d = LinearWeightGradient(dy, x, layout, DType::kFloat32, ctx.accumulator(1),
//   true);
//
// Where a device has a kernel for a product together with what follows it (cuBLASLt's epilogues on
// the GPU), that is used; elsewhere the steps are taken one by one.
#ifndef TESSERA_OPS_MATMUL_PRODUCT_H_
#define TESSERA_OPS_MATMUL_PRODUCT_H_

#include <vector>

#include "core/tensor.h"
#include "ops/matmul/matmul.h"

namespace tessera {

// a [..., M, K] b [..., K, N] with an optional bias [N] (contiguous, of c_dtype), in `c_dtype`:
// that of a and b, or float32 for half precision. Leading dims broadcast.
Tensor Product(const Tensor& a, const Tensor& b, const Tensor& bias, DType c_dtype);
Tensor Product(const Tensor& a, const Tensor& b);

// The product of two matrices, each row of which begins where the device writes and reads rows
// fastest: where rows of N elements would not begin at a multiple of 16 bytes, the GPU's lie
// round_up(N, 64) elements apart, if N is 1024 at least. What is between them is undefined.
Tensor AlignedProduct(const Tensor& a, const Tensor& b, const Tensor& bias, DType c_dtype);

// c += a b of matrices; `c` is a product's result, of any of the dtypes that a product may have,
// and is rounded once.
void AddProduct(const Tensor& a, const Tensor& b, const Tensor& c);

// c = a b of matrices, whose rows are contiguous in c.
struct OneProduct {
  Tensor a, b, c;
};
// Products of one dtype, on the CPU spread over the threads together: each has the bits that it has
// alone.
void SideBySide(const std::vector<OneProduct>& products);

// a b of matrices, summed over k in the tree and over the tree's ranks: the same on each of them,
// in AccumulateDType of a.
Tensor TreeProduct(const Tensor& a, const Tensor& b, const SumTree& tree);

// The right-hand side of several products: brought into the form that its device reads once,
// instead of by each of them.
//
//   const ProductFactor factor(w);
//   for (...) y = Product(x, factor, bias, dtype);     // the bits of Product(x, w, bias, dtype)
//
// `b` [K, N] must not change meanwhile.
class ProductFactor {
 public:
  explicit ProductFactor(const Tensor& b);

 private:
  friend Tensor Product(const Tensor& a, const ProductFactor& b, const Tensor& bias, DType c_dtype);
  const Tensor b_;
  Tensor packed_;  // undefined: the device reads b
};
// `a` is a matrix.
Tensor Product(const Tensor& a, const ProductFactor& b, const Tensor& bias, DType c_dtype);

// The last two dims exchanged.
Tensor Transposed(const Tensor& t);

// GeluTanh(a b + bias) of two matrices; `*input` becomes a b + bias where it is not nullptr.
Tensor GeluOfProduct(const Tensor& a, const Tensor& b, const Tensor& bias, Tensor* input);

// (a b) gelu_tanh'(input), elementwise; a and b are matrices, input [M, N].
Tensor ProductTimesGeluGrad(const Tensor& a, const Tensor& b, const Tensor& input);

// Of y = x w + bias with matrices x [rows, in] and dy [rows, out].
struct WeightGradient {
  Tensor weight;  // in `dtype` and the layout of the weight; undefined: added to `sum`
  Tensor bias;    // undefined unless asked for
};
// `sum`: what the weight has already (GradContext::accumulator), or undefined. The CPU leaves
// adding to the tape, so that the bits of a sum do not depend on who adds.
WeightGradient LinearWeightGradient(const Tensor& dy, const Tensor& x, LinearLayout layout,
                                    DType dtype, const Tensor& sum, bool needs_bias);

}  // namespace tessera

#endif  // TESSERA_OPS_MATMUL_PRODUCT_H_
