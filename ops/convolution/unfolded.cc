// SPDX-License-Identifier: Apache-2.0
#include "ops/convolution/unfolded.h"

#include <algorithm>
#include <vector>

#include "autograd/autograd.h"
#include "ops/matmul/product.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

// Bytes of columns that are made at once.
constexpr int64_t kColumnBytes = int64_t{256} << 20;

int64_t RowsOf(const ConvShape& s) { return s.groups * s.in_channels * s.taps(); }

// Calls f(shape of the part, first picture).
template <typename F>
void EachPart(const ConvShape& shape, DType dtype, F f) {
  const int64_t bytes = BytesOf(dtype, RowsOf(shape) * shape.out_pixels());
  const int64_t images = std::clamp<int64_t>(kColumnBytes / bytes, 1, shape.batch);
  for (int64_t n = 0; n < shape.batch; n += images) {
    ConvShape part = shape;
    part.batch = std::min(images, shape.batch - n);
    f(part, n);
  }
}

// Pictures [n, n + count) of a contiguous tensor as [count, groups, channels, pixels].
Tensor Pictures(const Tensor& t, int64_t n, int64_t count, int64_t groups, int64_t channels,
                int64_t pixels) {
  const Shape shape{count, groups, channels, pixels};
  return t.AsStrided(shape, ContiguousStrides(shape), t.offset() + n * groups * channels * pixels);
}

Tensor WeightMatrices(const ConvShape& s, const Tensor& weight) {
  return Reshape(weight, {s.groups, s.out_channels, s.in_channels * s.taps()});
}

}  // namespace

Tensor UnfoldedForward(const ConvShape& shape, const Tensor& x, const Tensor& weight) {
  const NoGrad no_grad;
  std::vector<Tensor> parts;
  EachPart(shape, x.dtype(), [&](const ConvShape& s, int64_t n) {
    const Tensor pictures = Pictures(x, n, s.batch, s.groups, s.in_channels, s.in_pixels());
    const int64_t pixels = s.out_pixels();
    const Tensor columns =
        Empty({s.batch, s.groups, s.in_channels * s.taps(), pixels}, x.dtype(), x.device());
    unfold_kernel.Launch(x.device(), {.dtype = x.dtype(),
                                      .shape = s,
                                      .x = pictures.raw_data(),
                                      .image_stride = RowsOf(s) * pixels,
                                      .row_stride = pixels,
                                      .columns = columns.raw_data()});
    parts.push_back(Product(WeightMatrices(s, weight), columns));
  });
  return parts.size() == 1 ? parts[0] : Cat(parts, 0);
}

Tensor UnfoldedInputGrad(const ConvShape& shape, const Tensor& dy, const Tensor& weight) {
  const NoGrad no_grad;
  const Tensor dx = Empty({shape.batch, shape.groups, shape.in_channels, shape.in_pixels()},
                          dy.dtype(), dy.device());
  EachPart(shape, dy.dtype(), [&](const ConvShape& s, int64_t n) {
    const int64_t pixels = s.out_pixels();
    const Tensor columns = Product(Transposed(WeightMatrices(s, weight)),
                                   Pictures(dy, n, s.batch, s.groups, s.out_channels, pixels));
    const Tensor part = Pictures(dx, n, s.batch, s.groups, s.in_channels, s.in_pixels());
    fold_kernel.Launch(dy.device(), {.dtype = dy.dtype(),
                                     .shape = s,
                                     .columns = columns.raw_data(),
                                     .image_stride = RowsOf(s) * pixels,
                                     .row_stride = pixels,
                                     .dx = part.raw_data()});
  });
  return dx;
}

Tensor UnfoldedWeightGrad(const ConvShape& shape, const Tensor& x, const Tensor& dy) {
  const NoGrad no_grad;
  Tensor sum;
  EachPart(shape, x.dtype(), [&](const ConvShape& s, int64_t n) {
    // The pictures side by side, so that the product sums over them, too.
    const int64_t pixels = s.batch * s.out_pixels();
    const Tensor columns =
        Empty({s.groups, s.in_channels * s.taps(), pixels}, x.dtype(), x.device());
    const Tensor pictures = Pictures(x, n, s.batch, s.groups, s.in_channels, s.in_pixels());
    unfold_kernel.Launch(x.device(), {.dtype = x.dtype(),
                                      .shape = s,
                                      .x = pictures.raw_data(),
                                      .image_stride = s.out_pixels(),
                                      .row_stride = pixels,
                                      .columns = columns.raw_data()});
    const Tensor dy_NGOP = Pictures(dy, n, s.batch, s.groups, s.out_channels, s.out_pixels());
    const Tensor dy_GOP =
        Reshape(Contiguous(Permute(dy_NGOP, {1, 2, 0, 3})), {s.groups, s.out_channels, pixels});
    const Tensor part = Product(dy_GOP, Transposed(columns), Tensor(), AccumulateDType(x.dtype()));
    if (sum.defined()) {
      AddInto(sum, part);
    } else {
      sum = part;
    }
  });
  return sum;
}

}  // namespace tessera
