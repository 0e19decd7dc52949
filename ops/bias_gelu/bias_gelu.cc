#include "ops/bias_gelu/bias_gelu.h"

#include "autograd/autograd.h"
#include "ops/bias_gelu/bias_gelu_kernel.h"
#include "ops/reduction/sum.h"

namespace tessera {
namespace {

Tensor LaunchForward(const Tensor& x, const Tensor& bias, GeluKind kind) {
  Tensor y = Empty(x.shape(), x.dtype(), x.device());
  if (x.numel() == 0) return y;
  const Tensor xc = x.ContiguousCopy();
  const Tensor bc = bias.ContiguousCopy();
  const int64_t n = x.size(-1);
  bias_gelu_forward.Launch(x.device(), {x.dtype(), kind == GeluKind::kTanh, x.numel() / n, n,
                                        xc.raw_data(), bc.raw_data(), y.raw_data()});
  return y;
}

// dx = dy * gelu'(x + bias).
Tensor LaunchBackward(const Tensor& x, const Tensor& bias, const Tensor& dy, GeluKind kind) {
  Tensor dx = Empty(x.shape(), x.dtype(), x.device());
  if (x.numel() == 0) return dx;
  const Tensor xc = x.ContiguousCopy();
  const Tensor bc = bias.ContiguousCopy();
  const Tensor dyc = dy.ContiguousCopy();
  const int64_t n = x.size(-1);
  bias_gelu_backward.Launch(x.device(),
                            {x.dtype(), kind == GeluKind::kTanh, x.numel() / n, n, xc.raw_data(),
                             bc.raw_data(), dyc.raw_data(), dx.raw_data()});
  return dx;
}

}  // namespace

Tensor BiasGelu(const Tensor& x, const Tensor& bias, GeluKind kind) {
  TESSERA_CHECK(x.ndim() >= 1 && IsFloating(x.dtype()), "bias_gelu", "not supported for ", x);
  TESSERA_CHECK(
      bias.shape() == Shape{x.size(-1)} && bias.dtype() == x.dtype() && bias.device() == x.device(),
      "bias_gelu", "bias ", bias, " for ", x);
  const Tensor y = LaunchForward(x, bias, kind);
  if (AnyRequiresGrad({x, bias})) {
    Record("bias_gelu", {x, bias}, {y},
           [kind, x = SavedTensor(x), bias = SavedTensor(bias)](GradContext& ctx) {
             const Tensor b = bias.Unpack();
             const Tensor dx = LaunchBackward(x.Unpack(), b, ctx.grad(), kind);
             if (ctx.needs(0)) ctx.set(0, dx);
             if (ctx.needs(1)) ctx.set(1, SumTo(dx, b.shape()));
           });
  }
  return y;
}

}  // namespace tessera
