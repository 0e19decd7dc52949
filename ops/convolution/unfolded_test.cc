// SPDX-License-Identifier: Apache-2.0
// Convolutions by way of an unfolded copy, which GPUs take, beside those of the CPU's own kernels.
#include "ops/convolution/unfolded.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ops/convolution/convolution_parts.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

// Calls f(place in the columns, index in x) for every element of the columns; the index is negative
// in the padding.
template <typename F>
void EachColumnElement(const ConvShape& s, int64_t image_stride, int64_t row_stride, F f) {
  const int64_t rows = s.groups * s.in_channels * s.taps();
  for (int64_t n = 0; n < s.batch; ++n) {
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t channel = row / s.taps();
      const int64_t i = row % s.taps() / s.w.kernel, j = row % s.w.kernel;
      for (int64_t p = 0; p < s.out_pixels(); ++p) {
        const int64_t h = p / s.w.out * s.h.stride + i * s.h.dilation - s.h.padding;
        const int64_t w = p % s.w.out * s.w.stride + j * s.w.dilation - s.w.padding;
        const bool inside = h >= 0 && h < s.h.in && w >= 0 && w < s.w.in;
        const int64_t plane = n * s.groups * s.in_channels + channel;
        f(n * image_stride + row * row_stride + p,
          inside ? (plane * s.h.in + h) * s.w.in + w : int64_t{-1});
      }
    }
  }
}

void UnfoldNaive(const UnfoldArgs& args) {
  const auto* x = static_cast<const double*>(args.x);
  auto* columns = static_cast<double*>(args.columns);
  EachColumnElement(args.shape, args.image_stride, args.row_stride,
                    [&](int64_t at, int64_t from) { columns[at] = from < 0 ? 0.0 : x[from]; });
}

void FoldNaive(const FoldArgs& args) {
  const ConvShape& s = args.shape;
  const auto* columns = static_cast<const double*>(args.columns);
  auto* dx = static_cast<double*>(args.dx);
  std::fill_n(dx, s.batch * s.groups * s.in_channels * s.in_pixels(), 0.0);
  EachColumnElement(s, args.image_stride, args.row_stride, [&](int64_t at, int64_t to) {
    if (to >= 0) dx[to] += columns[at];
  });
}

// Only GPUs have these.
TESSERA_REGISTER_KERNEL(unfold_kernel, DeviceType::kCpu, UnfoldNaive);
TESSERA_REGISTER_KERNEL(fold_kernel, DeviceType::kCpu, FoldNaive);

ConvDim DimOf(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
  const int64_t out = (in + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
  return {in, out, kernel, stride, padding, dilation};
}

void ExpectTheSame(const ConvShape& s) {
  const Shape x_shape{s.batch, s.groups * s.in_channels, s.h.in, s.w.in};
  const Shape y_shape{s.batch, s.groups * s.out_channels, s.h.out, s.w.out};
  const Shape w_shape{s.groups * s.out_channels, s.in_channels, s.h.kernel, s.w.kernel};
  const Tensor x = RandomTensor(x_shape, 1), weight = RandomTensor(w_shape, 2);
  const Tensor dy = RandomTensor(y_shape, 3);
  const auto close = [](const Tensor& found, const Tensor& expected, const char* what) {
    ExpectClose(Reshape(found, expected.shape()), expected, 1e-13, what);
  };
  close(UnfoldedForward(s, x, weight), ConvForward(s, x, weight, Tensor(), y_shape), "y");
  close(UnfoldedInputGrad(s, dy, weight), ConvInputGrad(s, dy, weight, Tensor(), x_shape), "dx");
  close(UnfoldedWeightGrad(s, x, dy), ConvWeightGrad(s, x, dy, DType::kFloat64, w_shape), "dw");
}

TEST(UnfoldedTest, IsTheConvolution) {
  ExpectTheSame({1, 1, 1, 1, DimOf(3, 3, 1, 0, 1), DimOf(3, 3, 1, 0, 1)});
  ExpectTheSame({3, 2, 3, 2, DimOf(7, 3, 1, 1, 1), DimOf(5, 2, 1, 0, 1)});
  ExpectTheSame({2, 3, 2, 5, DimOf(9, 3, 2, 2, 1), DimOf(8, 4, 3, 1, 1)});
  ExpectTheSame({2, 1, 4, 3, DimOf(11, 3, 1, 2, 2), DimOf(10, 2, 2, 0, 3)});
}

// Of three pictures with 98 MB of columns each, two are taken at a time.
TEST(UnfoldedTest, LargePicturesAreTakenInParts) {
  ExpectTheSame({3, 1, 1, 2, DimOf(700, 5, 1, 2, 1), DimOf(700, 5, 1, 2, 1)});
}

}  // namespace
}  // namespace tessera
