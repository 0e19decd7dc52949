// SPDX-License-Identifier: Apache-2.0
#include "ops/convolution/convolution.h"

#include <utility>

#include "autograd/autograd.h"
#include "ops/cast/autocast.h"
#include "ops/convolution/convolution_parts.h"
#include "ops/reduction/sum.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

// Under autocast parameters are float32 beside inputs of half precision.
bool FitsTo(const Tensor& parameter, const Tensor& x) {
  return parameter.dtype() == x.dtype() ||
         (parameter.dtype() == DType::kFloat32 && x.dtype() == AutocastDType());
}

void CheckTensors(const char* name, const Tensor& x, const Tensor& weight, const Tensor& bias,
                  int64_t outputs) {
  TESSERA_CHECK(IsFloating(x.dtype()) && FitsTo(weight, x) && x.device() == weight.device(), name,
                "cannot convolve ", x, " by ", weight,
                ": one floating dtype and device are needed");
  TESSERA_CHECK(
      !bias.defined() ||
          (bias.shape() == Shape{outputs} && FitsTo(bias, x) && bias.device() == x.device()),
      name, "bias ", bias, " is not [", outputs, "] of ", x.dtype(), ", as the outputs are");
}

// A dim of the side that the kernel slides over; `out` is 0 where no kernel fits.
ConvDim DimOf(const char* name, int64_t in, int64_t kernel, int64_t stride, int64_t padding,
              int64_t dilation) {
  TESSERA_CHECK(stride >= 1 && padding >= 0 && dilation >= 1, name, "stride ", stride, ", padding ",
                padding, ", dilation ", dilation);
  const int64_t reach = in + 2 * padding - dilation * (kernel - 1) - 1;
  return {in, reach < 0 ? 0 : reach / stride + 1, kernel, stride, padding, dilation};
}

// x [N, C, ...] by weight [O, C / groups, ...], which slides over `dims` dims.
void CheckConvolution(const char* name, const Tensor& x, const Tensor& weight, const Tensor& bias,
                      int64_t groups, int dims) {
  TESSERA_CHECK(x.ndim() == 2 + dims && weight.ndim() == 2 + dims && groups >= 1 &&
                    x.size(1) == weight.size(1) * groups && weight.size(0) % groups == 0,
                name, "cannot convolve ", x, " by ", weight, " in ", groups, " groups");
  CheckTensors(name, x, weight, bias, weight.size(0));
}

void CheckSizes(const char* name, const ConvShape& s, const Tensor& x, const Tensor& weight) {
  TESSERA_CHECK(s.in_channels > 0 && s.out_channels > 0 && s.h.kernel > 0 && s.w.kernel > 0 &&
                    s.h.in > 0 && s.w.in > 0 && s.h.out > 0 && s.w.out > 0,
                name, "nothing is left of ", x, " convolved by ", weight);
}

Tensor Detached(const Tensor& t, DType dtype) {
  return t.defined() ? Cast(t.Detach(), dtype).ContiguousCopy() : t;
}

DType GradientDType(const Tensor& weight) {
  return IsLeaf(weight) ? GradDType(weight) : weight.dtype();
}

// The gradients of weight (input 1) and bias (input 2); dim 1 of dy is the bias's.
GradFn WeightBackward(const Tensor& x, const Tensor& weight, const ConvShape& shape,
                      bool transposed) {
  return [x = SavedTensor(RequiresGrad(weight) ? x : Tensor()), shape, transposed,
          weight_shape = weight.shape(), dtype = GradientDType(weight)](GradContext& ctx) {
    const Tensor& dy = ctx.grad();
    if (ctx.needs(1)) {
      const Tensor in = x.Unpack();
      ctx.set(1, ConvWeightGrad(shape, transposed ? dy : in, transposed ? in : dy, dtype,
                                weight_shape));
    }
    if (ctx.needs(2)) {
      const NoGrad no_grad;
      Shape sizes = dy.shape();
      for (int d = 0; d < sizes.ndim(); ++d) sizes[d] = d == 1 ? sizes[d] : 1;
      ctx.set(2, Reshape(SumTo(dy, sizes), {dy.size(1)}));
    }
  };
}

Tensor Convolve(const char* name, const Tensor& x, const Tensor& weight, const Tensor& bias,
                const ConvShape& shape, const Shape& result) {
  const Tensor y = ConvForward(shape, x.Detach(), Detached(weight, x.dtype()),
                               Detached(bias, x.dtype()), result);
  if (!AnyRequiresGrad({x, weight, bias})) return y;
  GradFn input_backward = [weight = SavedTensor(weight), shape,
                           x_shape = x.shape()](GradContext& ctx) {
    if (!ctx.needs(0)) return;
    const DType dtype = ctx.grad().dtype();
    ctx.set(0,
            ConvInputGrad(shape, ctx.grad(), Detached(weight.Unpack(), dtype), Tensor(), x_shape));
  };
  RecordSplit(name, {x, weight, bias}, {y}, std::move(input_backward), {1, 2},
              WeightBackward(x, weight, shape, /*transposed=*/false));
  return y;
}

}  // namespace

Tensor Conv2d(const Tensor& given, const Tensor& weight, const Tensor& bias,
              const Conv2dOptions& options) {
  constexpr const char* kName = "conv2d";
  const Tensor x = ForProduct(given);
  const int64_t groups = options.groups;
  CheckConvolution(kName, x, weight, bias, groups, 2);
  const ConvShape shape{x.size(0),
                        groups,
                        weight.size(1),
                        weight.size(0) / groups,
                        DimOf(kName, x.size(2), weight.size(2), options.stride.h, options.padding.h,
                              options.dilation.h),
                        DimOf(kName, x.size(3), weight.size(3), options.stride.w, options.padding.w,
                              options.dilation.w)};
  CheckSizes(kName, shape, x, weight);
  return Convolve(kName, x, weight, bias, shape,
                  {x.size(0), weight.size(0), shape.h.out, shape.w.out});
}

Tensor Conv1d(const Tensor& given, const Tensor& weight, const Tensor& bias,
              const Conv1dOptions& options) {
  constexpr const char* kName = "conv1d";
  const Tensor x = ForProduct(given);
  const int64_t groups = options.groups;
  CheckConvolution(kName, x, weight, bias, groups, 1);
  const ConvShape shape{
      x.size(0),
      groups,
      weight.size(1),
      weight.size(0) / groups,
      DimOf(kName, 1, 1, 1, 0, 1),
      DimOf(kName, x.size(2), weight.size(2), options.stride, options.padding, options.dilation)};
  CheckSizes(kName, shape, x, weight);
  return Convolve(kName, x, weight, bias, shape, {x.size(0), weight.size(0), shape.w.out});
}

// The roles of x and y are exchanged: x is what a convolution of y would give.
Tensor ConvTranspose2d(const Tensor& given, const Tensor& weight, const Tensor& bias,
                       const ConvTranspose2dOptions& options) {
  constexpr const char* kName = "conv_transpose2d";
  const Tensor x = ForProduct(given);
  const int64_t groups = options.groups;
  TESSERA_CHECK(x.ndim() == 4 && weight.ndim() == 4 && groups >= 1 && x.size(1) == weight.size(0) &&
                    weight.size(0) % groups == 0,
                kName, "cannot convolve ", x, " by ", weight, " in ", groups, " groups");
  const int64_t outputs = weight.size(1) * groups;
  CheckTensors(kName, x, weight, bias, outputs);
  const auto dim = [&](int d, int64_t stride, int64_t padding, int64_t dilation, int64_t extra) {
    TESSERA_CHECK(extra >= 0 && (extra < stride || extra < dilation), kName, "output_padding ",
                  extra, " for stride ", stride, " and dilation ", dilation);
    const int64_t size =
        (x.size(d) - 1) * stride - 2 * padding + dilation * (weight.size(d) - 1) + 1 + extra;
    ConvDim result = DimOf(kName, size, weight.size(d), stride, padding, dilation);
    result.out = x.size(d);
    return result;
  };
  const ConvShape shape{
      x.size(0),
      groups,
      weight.size(1),
      weight.size(0) / groups,
      dim(2, options.stride.h, options.padding.h, options.dilation.h, options.output_padding.h),
      dim(3, options.stride.w, options.padding.w, options.dilation.w, options.output_padding.w)};
  CheckSizes(kName, shape, x, weight);
  const Tensor y =
      ConvInputGrad(shape, x.Detach(), Detached(weight, x.dtype()), Detached(bias, x.dtype()),
                    {x.size(0), outputs, shape.h.in, shape.w.in});
  if (!AnyRequiresGrad({x, weight, bias})) return y;
  GradFn input_backward = [weight = SavedTensor(weight), shape,
                           x_shape = x.shape()](GradContext& ctx) {
    if (!ctx.needs(0)) return;
    const DType dtype = ctx.grad().dtype();
    ctx.set(0, ConvForward(shape, ctx.grad(), Detached(weight.Unpack(), dtype), Tensor(), x_shape));
  };
  RecordSplit(kName, {x, weight, bias}, {y}, std::move(input_backward), {1, 2},
              WeightBackward(x, weight, shape, /*transposed=*/true));
  return y;
}

}  // namespace tessera
