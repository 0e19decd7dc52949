// SPDX-License-Identifier: Apache-2.0
#include "ops/convolution/convolution_parts.h"

#include <algorithm>

#include "autograd/autograd.h"
#include "ops/cast/cast.h"
#include "ops/convolution/unfolded.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduction/sum.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

// Pixels that a slice of a weight gradient has at least, slices and their elements at most: enough
// for the threads of a large machine where the weight is small.
constexpr int64_t kSlicePixels = 4096;
constexpr int64_t kMostSlices = 16;
constexpr int64_t kMostSliceElements = int64_t{1} << 24;

// On meta by the target alone.
bool IsUnfolded(const Tensor& t) { return t.device().target != DeviceType::kCpu; }

const void* DataOrNull(const Tensor& t) { return t.defined() ? t.raw_data() : nullptr; }

Tensor WithBias(const Tensor& pictures, const Tensor& bias, const Shape& result) {
  const NoGrad no_grad;
  if (!bias.defined()) return Reshape(pictures, result);
  const Tensor flat = Reshape(pictures, {result[0], result[1], -1});
  return Reshape(Add(flat, Reshape(bias, {1, bias.numel(), 1})), result);
}

// By the shape alone, so that bits are.
int64_t SlicesOf(const ConvShape& s, int64_t weights) {
  const int64_t parts = s.depthwise() ? s.batch : s.batch * s.out_pixels() / kSlicePixels;
  const int64_t most = std::min(kMostSlices, kMostSliceElements / std::max<int64_t>(1, weights));
  return std::clamp<int64_t>(parts, 1, std::max<int64_t>(1, most));
}

}  // namespace

Tensor ConvForward(const ConvShape& shape, const Tensor& x, const Tensor& weight,
                   const Tensor& bias, const Shape& result) {
  if (shape.batch == 0) return Empty(result, x.dtype(), x.device());
  const Tensor xc = x.ContiguousCopy();
  const Tensor wc = weight.ContiguousCopy();
  if (IsUnfolded(x)) return WithBias(UnfoldedForward(shape, xc, wc), bias, result);
  const Tensor y = Empty(result, x.dtype(), x.device());
  conv_forward.Launch(x.device(), {.dtype = x.dtype(),
                                   .shape = shape,
                                   .x = xc.raw_data(),
                                   .weight = wc.raw_data(),
                                   .bias = DataOrNull(bias),
                                   .y = y.raw_data()});
  return y;
}

Tensor ConvInputGrad(const ConvShape& shape, const Tensor& dy, const Tensor& weight,
                     const Tensor& bias, const Shape& result) {
  if (shape.batch == 0) return Empty(result, dy.dtype(), dy.device());
  const Tensor dyc = dy.ContiguousCopy();
  const Tensor wc = weight.ContiguousCopy();
  if (IsUnfolded(dy)) return WithBias(UnfoldedInputGrad(shape, dyc, wc), bias, result);
  const Tensor dx = Empty(result, dy.dtype(), dy.device());
  conv_input_grad.Launch(dy.device(), {.dtype = dy.dtype(),
                                       .shape = shape,
                                       .dy = dyc.raw_data(),
                                       .weight = wc.raw_data(),
                                       .bias = DataOrNull(bias),
                                       .dx = dx.raw_data()});
  return dx;
}

Tensor ConvWeightGrad(const ConvShape& shape, const Tensor& x, const Tensor& dy, DType dtype,
                      const Shape& result) {
  if (shape.batch == 0) return Zeros(result, dtype, x.device());
  const NoGrad no_grad;
  const Tensor xc = x.ContiguousCopy();
  const Tensor dyc = dy.ContiguousCopy();
  if (IsUnfolded(x)) return Cast(Reshape(UnfoldedWeightGrad(shape, xc, dyc), result), dtype);
  const int64_t slices = SlicesOf(shape, result.numel());
  const Tensor partial = Empty({slices, result.numel()}, AccumulateDType(x.dtype()), x.device());
  conv_weight_grad.Launch(x.device(), {.dtype = x.dtype(),
                                       .shape = shape,
                                       .slices = slices,
                                       .x = xc.raw_data(),
                                       .dy = dyc.raw_data(),
                                       .partial = partial.raw_data()});
  return Cast(Reshape(slices == 1 ? partial : Sum(partial, {0}), result), dtype);
}

}  // namespace tessera
