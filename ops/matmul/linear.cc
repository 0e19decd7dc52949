// SPDX-License-Identifier: Apache-2.0
#include "autograd/autograd.h"
#include "ops/cast/autocast.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/linear_gelu.h"
#include "ops/matmul/low_rank_linear.h"
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
                "linear", "cannot apply ", out_in ? "[out, in] " : "[in, out] ", weight, " to ", x,
                ": the last dim must be the weight's `in`, of one floating dtype and device");
  const int64_t out = weight.size(out_in ? 0 : 1);
  TESSERA_CHECK(!bias.defined() ||
                    (bias.shape() == Shape{out} && FitsTo(bias, x) && bias.device() == x.device()),
                "linear", "bias ", bias, " is not [", out, "] of ", x.dtype(), " on ", x.device(),
                ", as the outputs are");
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
// A bias in one piece, in `dtype`, where there is one.
Tensor BiasOfProduct(const Tensor& bias, DType dtype) {
  return bias.defined() ? Cast(bias.Detach(), dtype).ContiguousCopy() : bias;
}
using Tree = std::shared_ptr<const SumTree>;

// x weight + bias of matrices.
Tensor Apply(const Tensor& x, const Tensor& weight, const Tensor& bias, LinearLayout layout,
             const Tree& tree = nullptr) {
  const DType dtype = x.dtype();
  if (tree != nullptr) {
    const NoGrad no_grad;
    const Tensor sum = TreeProduct(x, InOut(weight, layout, dtype), *tree);
    if (bias.defined()) AddInto(sum, BroadcastTo(Cast(bias.Detach(), sum.dtype()), sum.shape()));
    return Cast(sum, dtype);
  }
  return AlignedProduct(x, InOut(weight, layout, dtype), BiasOfProduct(bias, dtype), dtype);
}

// A product [rows, last] as [..., last] with the leading dims of `like`.
Tensor WithLeadingDims(const Tensor& matrix, const Shape& like) {
  const NoGrad no_grad;
  Shape shape = like;
  shape[-1] = matrix.size(1);
  return Reshape(matrix, shape);
}

// In what dtype the gradient of a weight is computed.
DType WeightGradDType(const Tensor& weight) {
  return IsLeaf(weight) ? GradDType(weight) : weight.dtype();
}

// The sum of a column as it is beside others; alone it would be taken as a row's, in another order.
Tensor SumOfColumn(const Tensor& dy) {
  const NoGrad no_grad;
  return Slice(SumTo(Cat({dy, dy}, 1), {2}), 0, 0, 1);
}

// The second function of a node that multiplies `x` by weight, its input 1, and adds input 2. A
// column that is left of others' counts as one of them, where `in_tree`.
GradFn WeightBackward(const Tensor& x, const Tensor& weight, LinearLayout layout,
                      bool in_tree = false) {
  const DType dtype = WeightGradDType(weight);
  return [x = SavedTensor(RequiresGrad(weight) ? x : Tensor()), layout, dtype,
          in_tree](GradContext& ctx) {
    const Tensor dy = AsMatrix(ctx.grad());
    const bool alone = in_tree && dy.size(1) == 1;
    if (ctx.needs(2) && alone) ctx.set(2, SumOfColumn(dy));
    const bool needs_bias = ctx.needs(2) && !alone;
    if (!ctx.needs(1)) {
      if (needs_bias) ctx.set(2, SumTo(dy, {dy.size(1)}));
      return;
    }
    const WeightGradient gradient = LinearWeightGradient(dy, AsMatrix(x.Unpack()), layout, dtype,
                                                         ctx.accumulator(1), needs_bias);
    if (gradient.weight.defined()) ctx.set(1, gradient.weight);
    if (needs_bias) ctx.set(2, gradient.bias);
  };
}

// dy weight^T of matrices, in dy's dtype.
Tensor InputGradient(const Tensor& dy, const Tensor& weight, LinearLayout layout,
                     const Tree& tree) {
  const Tensor out_in = OutIn(weight, layout, dy.dtype());
  if (tree == nullptr) return Product(dy, out_in);
  const NoGrad no_grad;
  return Cast(TreeProduct(dy, out_in, *tree), dy.dtype());
}

// Connects y = x weight + bias.
void RecordLinear(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y,
                  LinearLayout layout, const Tree& outputs = nullptr) {
  GradFn input_backward = [weight = SavedTensor(weight), layout, x_shape = x.shape(),
                           outputs](GradContext& ctx) {
    if (!ctx.needs(0)) return;
    const Tensor dy = AsMatrix(ctx.grad());
    const Tensor dx = InputGradient(dy, weight.Unpack(), layout, outputs);
    ctx.set(0, WithLeadingDims(dx, x_shape));
  };
  RecordSplit("linear", {x, weight, bias}, {y}, std::move(input_backward), {1, 2},
              WeightBackward(x, weight, layout, outputs != nullptr));
}

}  // namespace

Tensor Linear(const Tensor& given, const Tensor& weight, const Tensor& bias, LinearLayout layout,
              const LinearTrees& trees) {
  const Tensor x = ForProduct(given);
  Check(x, weight, bias, layout);
  const Tensor y =
      WithLeadingDims(Apply(AsMatrix(x), weight, bias, layout, trees.inputs), x.shape());
  if (AnyRequiresGrad({x, weight, bias})) RecordLinear(x, weight, bias, y, layout, trees.outputs);
  return y;
}

Gelued LinearGelu(const Tensor& given, const Tensor& weight, const Tensor& bias,
                  LinearLayout layout) {
  const Tensor x = ForProduct(given);
  Check(x, weight, bias, layout);
  const bool takes_part = AnyRequiresGrad({x, weight, bias});
  Tensor input;
  const Tensor value = GeluOfProduct(AsMatrix(x), InOut(weight, layout, x.dtype()),
                                     BiasOfProduct(bias, x.dtype()), takes_part ? &input : nullptr);
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

Tensor LowRankLinear(const Tensor& given, const Tensor& weight, const Tensor& bias,
                     LinearLayout layout, const LowRank& term) {
  const bool own_x = term.x.defined();
  const Tensor x = ForProduct(given);
  const Tensor term_x = own_x ? ForProduct(term.x) : x;
  Check(x, weight, bias, layout);
  Check(term_x, term.a, {}, LinearLayout::kOutIn);
  TESSERA_CHECK(term_x.shape() == x.shape(), "low_rank_linear", "a term of ", term_x, " beside ", x,
                ": they must have one shape");

  const auto scaled = [scale = term.scale](const Tensor& low) {
    const NoGrad no_grad;
    return Mul(low, scale);
  };
  const Tensor low =
      scaled(Apply(AsMatrix(term_x), term.a, {}, LinearLayout::kOutIn, term.trees.inputs));
  Check(low, term.b, {}, LinearLayout::kOutIn);
  TESSERA_CHECK(term.b.size(0) == weight.size(layout == LinearLayout::kOutIn ? 0 : 1),
                "low_rank_linear", "b ", term.b, " has not the outputs of the weight ", weight);
  const Tensor matrix = Apply(AsMatrix(x), weight, bias, layout, term.trees.inputs);
  AddProduct(low, InOut(term.b, LinearLayout::kOutIn, x.dtype()), matrix);
  const Tensor y = WithLeadingDims(matrix, x.shape());

  const std::vector<Tensor> inputs = {x, weight, bias, own_x ? term_x : Tensor(), term.a, term.b};
  if (!AnyRequiresGrad(inputs)) return y;
  const auto kept = [](const Tensor& t, bool needed) { return SavedTensor(needed ? t : Tensor()); };
  Record("low rank linear", inputs, {y},
         [weight = SavedTensor(weight), a = SavedTensor(term.a), b = SavedTensor(term.b),
          x = kept(x, RequiresGrad(weight)), term_x = kept(term_x, RequiresGrad(term.a)),
          low = kept(low, RequiresGrad(term.b)), shape = x.shape(), layout, scaled, own_x,
          outputs = term.trees.outputs, weight_dtype = WeightGradDType(weight),
          a_dtype = WeightGradDType(term.a), b_dtype = WeightGradDType(term.b)](GradContext& ctx) {
           const Tensor dy = AsMatrix(ctx.grad());
           const DType dtype = dy.dtype();
           // Of a matrix that is input i, from what it multiplied and the product's gradient.
           const auto set_weight = [&](int i, const Tensor& d, const Tensor& in, LinearLayout lies,
                                       DType as, bool with_bias) {
             const WeightGradient gradient =
                 LinearWeightGradient(d, AsMatrix(in), lies, as, ctx.accumulator(i), with_bias);
             if (gradient.weight.defined()) ctx.set(i, gradient.weight);
             if (with_bias) ctx.set(2, gradient.bias);
           };
           const bool to_low = ctx.needs(own_x ? 3 : 0) || ctx.needs(4);
           const Tensor d_low =
               to_low ? scaled(InputGradient(dy, b.Unpack(), LinearLayout::kOutIn, outputs))
                      : Tensor();
           const auto a_matrix = [&] { return OutIn(a.Unpack(), LinearLayout::kOutIn, dtype); };
           if (ctx.needs(0)) {
             const Tensor dx = InputGradient(dy, weight.Unpack(), layout, outputs);
             if (!own_x) AddProduct(d_low, a_matrix(), dx);
             ctx.set(0, WithLeadingDims(dx, shape));
           }
           if (ctx.needs(3)) ctx.set(3, WithLeadingDims(Product(d_low, a_matrix()), shape));
           if (ctx.needs(4)) {
             set_weight(4, d_low, term_x.Unpack(), LinearLayout::kOutIn, a_dtype, false);
           }
           if (ctx.needs(5)) {
             set_weight(5, dy, low.Unpack(), LinearLayout::kOutIn, b_dtype, false);
           }
           if (ctx.needs(1)) {
             set_weight(1, dy, x.Unpack(), layout, weight_dtype, ctx.needs(2));
           } else if (ctx.needs(2)) {
             ctx.set(2, SumTo(dy, {dy.size(1)}));
           }
         });
  return y;
}

}  // namespace tessera
