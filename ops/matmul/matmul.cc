#include "ops/matmul/matmul.h"

#include "autograd/autograd.h"
#include "ops/matmul/matmul_kernel.h"
#include "ops/reduction/sum.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

Shape BatchShape(const Tensor& t) { return Shape(t.shape().begin(), t.shape().end() - 2); }

Shape BatchStrides(const Tensor& t, const Shape& batch) {
  Shape strides = batch;
  const int lead = batch.ndim() - (t.ndim() - 2);
  for (int d = 0; d < batch.ndim(); ++d) {
    const bool repeats = d < lead || (t.size(d - lead) == 1 && batch[d] != 1);
    strides[d] = repeats ? 0 : t.stride(d - lead);
  }
  return strides;
}

// a [..., M, K] b [..., K, N] with an optional bias [N], in `c_dtype`, off the tape.
Tensor Product(const Tensor& a, const Tensor& b, const Tensor& bias, DType c_dtype) {
  const Shape batch = BroadcastShapes(BatchShape(a), BatchShape(b), "matmul");
  MatmulArgs args{};
  args.m = a.size(-2);
  args.n = b.size(-1);
  args.k = a.size(-1);
  args.dtype = a.dtype();
  args.c_dtype = c_dtype;
  args.batch = batch;
  Shape shape = batch;
  shape.push_back(args.m);
  shape.push_back(args.n);
  Tensor c = Empty(shape, c_dtype, a.device());
  if (c.numel() == 0) return c;
  args.a = a.raw_data();
  args.a_row_stride = a.stride(-2);
  args.a_col_stride = a.stride(-1);
  args.b = b.raw_data();
  args.b_row_stride = b.stride(-2);
  args.b_col_stride = b.stride(-1);
  args.c = c.raw_data();
  args.bias = bias.defined() ? bias.raw_data() : nullptr;
  args.a_batch_strides = BatchStrides(a, batch);
  args.b_batch_strides = BatchStrides(b, batch);
  matmul_kernel.Launch(a.device(), args);
  return c;
}

Tensor Product(const Tensor& a, const Tensor& b) { return Product(a, b, Tensor(), a.dtype()); }

Tensor T(const Tensor& t) { return Transpose(t, -1, -2); }

// All leading dims as one: [rows, last]. The last may be empty (a rank without heads).
Tensor AsMatrix(const Tensor& t) {
  const Shape leading(t.shape().begin(), t.shape().end() - 1);
  return Reshape(t, {leading.numel(), t.size(-1)});
}

}  // namespace

Tensor Matmul(const Tensor& a, const Tensor& b) {
  TESSERA_CHECK(a.ndim() >= 2 && b.ndim() >= 2 && a.size(-1) == b.size(-2) &&
                    a.dtype() == b.dtype() && IsFloating(a.dtype()) && a.device() == b.device(),
                "matmul", "cannot multiply ", a, " and ", b);
  Tensor c = Product(a, b);
  if (AnyRequiresGrad({a, b})) {
    Record("matmul", {a, b}, {c}, [a = SavedTensor(a), b = SavedTensor(b)](GradContext& ctx) {
      const Tensor x = a.Unpack();
      const Tensor y = b.Unpack();
      if (ctx.needs(0)) ctx.set(0, SumTo(Product(ctx.grad(), T(y)), x.shape()));
      if (ctx.needs(1)) ctx.set(1, SumTo(Product(T(x), ctx.grad()), y.shape()));
    });
  }
  return c;
}

Tensor Linear(const Tensor& x, const Tensor& weight, const Tensor& bias, LinearLayout layout) {
  const bool out_in = layout == LinearLayout::kOutIn;
  TESSERA_CHECK(x.ndim() >= 1 && weight.ndim() == 2 && x.size(-1) == weight.size(out_in ? 1 : 0) &&
                    x.dtype() == weight.dtype() && x.device() == weight.device() &&
                    IsFloating(x.dtype()),
                "linear", "cannot apply ", out_in ? "[out, in] " : "[in, out] ", weight, " to ", x);
  const int64_t out = weight.size(out_in ? 0 : 1);
  TESSERA_CHECK(!bias.defined() || (bias.shape() == Shape{out} && bias.dtype() == x.dtype() &&
                                    bias.is_contiguous()),
                "linear", "bias ", bias, " for ", out, " outputs of ", x.dtype());
  Tensor matrix;
  {
    const NoGrad no_grad;
    matrix = AsMatrix(x);
  }
  Tensor y = Product(matrix, out_in ? Transpose(weight.Detach(), 0, 1) : weight, bias, x.dtype());
  Shape shape = x.shape();
  shape[-1] = out;
  y = y.AsStrided(shape, ContiguousStrides(shape), 0);
  if (!AnyRequiresGrad({x, weight, bias})) return y;

  const DType weight_grad_dtype = IsLeaf(weight) ? GradDType(weight) : weight.dtype();
  RecordSplit(
      "linear", {x, weight, bias}, {y},
      [weight = SavedTensor(weight), out_in, x_shape = x.shape()](GradContext& ctx) {
        if (!ctx.needs(0)) return;
        const Tensor w = weight.Unpack();
        const Tensor dx = Product(AsMatrix(ctx.grad()), out_in ? w : T(w));
        ctx.set(0, dx.AsStrided(x_shape, ContiguousStrides(x_shape), 0));
      },
      {1, 2},
      [x = SavedTensor(RequiresGrad(weight) ? x : Tensor()), out_in,
       weight_grad_dtype](GradContext& ctx) {
        const Tensor dy = AsMatrix(ctx.grad());
        if (ctx.needs(1)) {
          const Tensor input = AsMatrix(x.Unpack());
          ctx.set(1, out_in ? Product(T(dy), input, Tensor(), weight_grad_dtype)
                            : Product(T(input), dy, Tensor(), weight_grad_dtype));
        }
        if (ctx.needs(2)) ctx.set(2, SumTo(dy, {dy.size(1)}));
      });
  return y;
}

}  // namespace tessera
