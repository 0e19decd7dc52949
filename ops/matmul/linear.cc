#include "autograd/autograd.h"
#include "ops/cast/autocast.h"
#include "ops/matmul/linear_gelu.h"
#include "ops/matmul/product.h"
#include "ops/reduction/sum.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

// Under autocast parameters are float32 beside inputs of half precision.
bool FitsTo(const Tensor& parameter, const Tensor& x) {
  return parameter.dtype() == x.dtype() ||
         (parameter.dtype() == DType::kFloat32 && x.dtype() == AutocastDType());
}

void Check(const Tensor& x, const Tensor& weight, const Tensor& bias, LinearLayout layout) {
  const bool out_in = layout == LinearLayout::kOutIn;
  TESSERA_CHECK(x.ndim() >= 1 && weight.ndim() == 2 && x.size(-1) == weight.size(out_in ? 1 : 0) &&
                    FitsTo(weight, x) && x.device() == weight.device() && IsFloating(x.dtype()),
                "linear", "cannot apply ", out_in ? "[out, in] " : "[in, out] ", weight, " to ", x);
  const int64_t out = weight.size(out_in ? 0 : 1);
  TESSERA_CHECK(
      !bias.defined() || (bias.shape() == Shape{out} && FitsTo(bias, x) && bias.is_contiguous()),
      "linear", "bias ", bias, " for ", out, " outputs of ", x.dtype());
}

// Off the tape, all leading dims as one: [rows, last]. The last may be empty (a rank without
// heads).
Tensor AsMatrix(const Tensor& t) {
  const NoGrad no_grad;
  const Shape leading(t.shape().begin(), t.shape().end() - 1);
  return Reshape(t, {leading.numel(), t.size(-1)});
}

// The weight as [in, out], and as [out, in], in `dtype`.
Tensor InOut(const Tensor& weight, LinearLayout layout, DType dtype) {
  const Tensor w = Cast(weight.Detach(), dtype);
  return layout == LinearLayout::kOutIn ? Transposed(w) : w;
}
Tensor OutIn(const Tensor& weight, LinearLayout layout, DType dtype) {
  const Tensor w = Cast(weight.Detach(), dtype);
  return layout == LinearLayout::kOutIn ? w : Transposed(w);
}
// x weight + bias of matrices.
Tensor Apply(const Tensor& x, const Tensor& weight, const Tensor& bias, LinearLayout layout) {
  const DType dtype = x.dtype();
  return Product(x, InOut(weight, layout, dtype),
                 bias.defined() ? Cast(bias.Detach(), dtype) : bias, dtype);
}

// A contiguous matrix [rows, last] as [..., last] with the leading dims of `like`.
Tensor WithLeadingDims(const Tensor& matrix, const Shape& like) {
  Shape shape = like;
  shape[-1] = matrix.size(1);
  return matrix.AsStrided(shape, ContiguousStrides(shape), 0);
}

// The second function of a node that multiplies `x` by weight, its input 1, and adds input 2.
GradFn WeightBackward(const Tensor& x, const Tensor& weight, LinearLayout layout) {
  const DType dtype = IsLeaf(weight) ? GradDType(weight) : weight.dtype();
  return [x = SavedTensor(RequiresGrad(weight) ? x : Tensor()), layout, dtype](GradContext& ctx) {
    const Tensor dy = AsMatrix(ctx.grad());
    if (!ctx.needs(1)) {
      ctx.set(2, SumTo(dy, {dy.size(1)}));
      return;
    }
    const WeightGradient gradient = LinearWeightGradient(dy, AsMatrix(x.Unpack()), layout, dtype,
                                                         ctx.accumulator(1), ctx.needs(2));
    if (gradient.weight.defined()) ctx.set(1, gradient.weight);
    if (ctx.needs(2)) ctx.set(2, gradient.bias);
  };
}

// Connects y = x weight + bias.
void RecordLinear(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y,
                  LinearLayout layout) {
  GradFn input_backward = [weight = SavedTensor(weight), layout,
                           x_shape = x.shape()](GradContext& ctx) {
    if (!ctx.needs(0)) return;
    const Tensor dy = AsMatrix(ctx.grad());
    const Tensor dx = Product(dy, OutIn(weight.Unpack(), layout, dy.dtype()));
    ctx.set(0, WithLeadingDims(dx, x_shape));
  };
  RecordSplit("linear", {x, weight, bias}, {y}, std::move(input_backward), {1, 2},
              WeightBackward(x, weight, layout));
}

}  // namespace

Tensor Linear(const Tensor& given, const Tensor& weight, const Tensor& bias, LinearLayout layout) {
  const Tensor x = ForProduct(given);
  Check(x, weight, bias, layout);
  const Tensor y = WithLeadingDims(Apply(AsMatrix(x), weight, bias, layout), x.shape());
  if (AnyRequiresGrad({x, weight, bias})) RecordLinear(x, weight, bias, y, layout);
  return y;
}

Gelued LinearGelu(const Tensor& given, const Tensor& weight, const Tensor& bias,
                  LinearLayout layout) {
  const Tensor x = ForProduct(given);
  Check(x, weight, bias, layout);
  const bool takes_part = AnyRequiresGrad({x, weight, bias});
  Tensor input;
  const Tensor value = GeluOfProduct(AsMatrix(x), InOut(weight, layout, x.dtype()),
                                     bias.defined() ? Cast(bias.Detach(), x.dtype()) : bias,
                                     takes_part ? &input : nullptr);
  Gelued y;
  y.value_ = WithLeadingDims(value, x.shape());
  if (!takes_part) return y;
  y.input_ = WithLeadingDims(input, x.shape());
  RecordLinear(x, weight, bias, y.input_, layout);
  return y;
}

Tensor LinearOfGelu(const Gelued& x, const Tensor& weight, const Tensor& bias,
                    LinearLayout layout) {
  Check(x.value(), weight, bias, layout);
  const Tensor y =
      WithLeadingDims(Apply(AsMatrix(x.value()), weight, bias, layout), x.value().shape());
  if (!AnyRequiresGrad({x.input(), weight, bias})) return y;

  GradFn input_backward = [weight = SavedTensor(weight), layout,
                           input = SavedTensor(x.input())](GradContext& ctx) {
    if (!ctx.needs(0)) return;
    const Tensor inner = input.Unpack();
    const Tensor dy = AsMatrix(ctx.grad());
    const Tensor dx =
        ProductTimesGeluGrad(dy, OutIn(weight.Unpack(), layout, dy.dtype()), AsMatrix(inner));
    ctx.set(0, WithLeadingDims(dx, inner.shape()));
  };
  RecordSplit("linear of gelu", {x.input(), weight, bias}, {y}, std::move(input_backward), {1, 2},
              WeightBackward(x.value(), weight, layout));
  return y;
}

}  // namespace tessera
