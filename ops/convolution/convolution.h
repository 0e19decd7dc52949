// SPDX-License-Identifier: Apache-2.0
// Convolutions of one and of two dims, and the transposed one.
//
//   Tensor y_NOHW = Conv2d(x_NCHW, weight_OCKK, bias_O, {.stride = 2, .padding = 1});
//   Tensor y_NOT = Conv1d(x_NCT, weight_OCK, Tensor(), {.padding = 1});
//   Tensor up_NOHW = ConvTranspose2d(x_NCHW, weight_COKK, bias_O, {.stride = 2});
//
// As PyTorch has them: a cross-correlation, x padded with zeros,
//   y[n, o, h, w] = bias[o] + sum over c, i, j of
//       weight[o, c, i, j] x[n, c, h * stride + i * dilation - padding, (w likewise)].
// Shapes: x [N, C, H, W], weight [O, C / groups, kernel, kernel], bias [O] or undefined, y
// [N, O, (H + 2 padding - dilation (kernel - 1) - 1) / stride + 1, ...]. Group g of the outputs
// sees group g of the inputs alone. ConvTranspose2d is the gradient of Conv2d by its input: weight
// [C, O / groups, kernel, kernel], height (H - 1) stride - 2 padding + dilation (kernel - 1) + 1 +
// output_padding. N may be zero.
//
// Floating dtypes, all alike; half precision is summed in float32 (on the GPU the bias is added,
// and the taps of the input's gradient are summed, after rounding). Gradients flow to all three
// arguments; those of weight and bias are given apart (autograd/autograd.h), the weight's, for a
// leaf, in the dtype its gradient is collected in. On the CPU an element's bits depend neither on N
// nor on its place or the number of threads, and weight gradients not on the number of threads.
// Shapes that do not fit throw Error.
//
// Method. CPU: the tiles of ops/matmul's products, their right-hand side gathered from x by panels
// that stay in the cache: no unfolded copy of x is made. One channel per group has a path of its
// own. GPU: x is unfolded by a kernel, some images at a time, and multiplied by cuBLASLt.
#ifndef TESSERA_OPS_CONVOLUTION_CONVOLUTION_H_
#define TESSERA_OPS_CONVOLUTION_CONVOLUTION_H_

#include <cstdint>

#include "core/tensor.h"
#include "ops/extent2d.h"

namespace tessera {

struct Conv2dOptions {
  Extent2d stride = 1;
  Extent2d padding = 0;
  Extent2d dilation = 1;
  int64_t groups = 1;
};
Tensor Conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv2dOptions& options = {});

// The same along one dim.
struct Conv1dOptions {
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;
  int64_t groups = 1;
};
// x [N, C, T], weight [O, C / groups, kernel].
Tensor Conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv1dOptions& options = {});

// The same of a transposed convolution.
struct ConvTranspose2dOptions {
  Extent2d stride = 1;
  Extent2d padding = 0;
  Extent2d output_padding = 0;  // less than stride or dilation
  Extent2d dilation = 1;
  int64_t groups = 1;
};
Tensor ConvTranspose2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                       const ConvTranspose2dOptions& options = {});

}  // namespace tessera

#endif  // TESSERA_OPS_CONVOLUTION_CONVOLUTION_H_
