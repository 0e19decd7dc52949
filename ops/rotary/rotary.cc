#include "ops/rotary/rotary.h"

#include "autograd/autograd.h"
#include "ops/rotary/rotary_kernel.h"

namespace tessera {
namespace {

Tensor Rotate(const Tensor& x, const Tensor& positions, const RotaryOptions& options,
              bool inverse) {
  Tensor y = Empty(x.shape(), x.dtype(), x.device());
  if (y.numel() == 0) return y;
  const Tensor xc = x.ContiguousCopy();
  rotary_kernel.Launch(
      x.device(), {x.dtype(), x.size(0), x.size(1), x.size(2), x.size(3), options.dims,
                   options.base, options.pairs == RotaryPairs::kInterleaved, inverse,
                   static_cast<const int64_t*>(positions.raw_data()), xc.raw_data(), y.raw_data()});
  return y;
}

}  // namespace

Tensor Rotary(const Tensor& x, const Tensor& positions, const RotaryOptions& requested) {
  TESSERA_CHECK(x.ndim() == 4 && IsFloating(x.dtype()) && positions.dtype() == DType::kInt64 &&
                    positions.device() == x.device() &&
                    positions.shape() == (Shape{x.size(0), x.size(2)}),
                "rotary", "x ", x, " and positions ", positions);
  RotaryOptions options = requested;
  if (options.dims == 0) options.dims = x.size(3);
  TESSERA_CHECK(options.dims % 2 == 0 && options.dims >= 0 && options.dims <= x.size(3), "rotary",
                options.dims, " features of ", x, " cannot be rotated in pairs");
  const Tensor at = positions.ContiguousCopy();
  Tensor y = Rotate(x, at, options, false);
  if (AnyRequiresGrad({x})) {
    Record("rotary", {x}, {y}, [at = SavedTensor(at), options](GradContext& ctx) {
      ctx.set(0, Rotate(ctx.grad(), at.Unpack(), options, true));
    });
  }
  return y;
}

}  // namespace tessera
