// SPDX-License-Identifier: Apache-2.0
// Matrix products.
//
//   Tensor scores = Matmul(q_BHTD, Transpose(k_BHTD, -1, -2));        // [B, H, T, T]
//   Tensor y = Linear(x_BTC, weight, bias, LinearLayout::kOutIn);     // [B, T, out]
//
// Floating dtypes; half precision accumulates in float32. Transposed and
// strided operands are read where they are, without a copy. The bits of an element do not depend on
// the number of rows or columns, nor on threads (ops/matmul/gemm.h). Shapes that do not fit throw
// Error.
#ifndef TESSERA_OPS_MATMUL_MATMUL_H_
#define TESSERA_OPS_MATMUL_MATMUL_H_

#include "core/tensor.h"
#include "ops/collective/sum_tree.h"

namespace tessera {

// a [..., M, K] times b [..., K, N] is [..., M, N]; leading dims broadcast. An operand of one dim
// is a row on the left, a column on the right, and its dim is not in the result: of two, the result
// is a number. Two dtypes are promoted (ops/cast/promotion.h).
Tensor Matmul(const Tensor& a, const Tensor& b);

// How a Linear's weight is stored.
enum class LinearLayout {
  kOutIn,  // [out, in], as most of Hugging Face: y = x W^T
  kInOut,  // [in, out], as GPT-2's Conv1D: y = x W
};

// x [..., in] to [..., out], plus bias [out] where defined. The gradients of weight and bias are
// given apart from that of x, so that they can be queued (autograd/autograd.h); for a leaf that of
// weight is computed in the dtype its gradient is collected in, that of bias in y's. The result may
// have rows that lie apart (AlignedProduct of ops/matmul/product.h): a language model's logits on a
// GPU do. With a tree of inputs, x and weight have this rank's features, and y is the whole sum;
// with one of outputs, dx is.
Tensor Linear(const Tensor& x, const Tensor& weight, const Tensor& bias, LinearLayout layout,
              const LinearTrees& trees = {});

}  // namespace tessera

#endif  // TESSERA_OPS_MATMUL_MATMUL_H_
