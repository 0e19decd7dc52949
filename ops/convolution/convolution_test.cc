// SPDX-License-Identifier: Apache-2.0
#include "ops/convolution/convolution.h"

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "core/thread_pool.h"
#include "ops/testing/op_check.h"

namespace tessera {
namespace {

// Calls f(x index, weight index, y index) for every product of a convolution of x by weight.
template <typename F>
void EachProduct(const Shape& x, const Shape& weight, const Shape& y, const Conv2dOptions& o, F f) {
  const int64_t outputs = weight[0] / o.groups;
  for (int64_t i = 0; i < y.numel(); ++i) {
    const int64_t w = i % y[3], h = i / y[3] % y[2], c_out = i / (y[3] * y[2]) % y[1];
    const int64_t n = i / (y[3] * y[2] * y[1]);
    for (int64_t k = 0; k < weight[1] * weight[2] * weight[3]; ++k) {
      const int64_t kw = k % weight[3], kh = k / weight[3] % weight[2];
      const int64_t c = k / (weight[3] * weight[2]);
      const int64_t in_h = h * o.stride.h + kh * o.dilation.h - o.padding.h;
      const int64_t in_w = w * o.stride.w + kw * o.dilation.w - o.padding.w;
      if (in_h < 0 || in_h >= x[2] || in_w < 0 || in_w >= x[3]) continue;
      const int64_t c_in = c_out / outputs * weight[1] + c;
      f(((n * x[1] + c_in) * x[2] + in_h) * x[3] + in_w,
        c_out * weight[1] * weight[2] * weight[3] + k, i);
    }
  }
}

int64_t OutOf(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
  return (in + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
}

Shape OutShape(const Shape& x, const Shape& weight, const Conv2dOptions& o) {
  return {x[0], weight[0], OutOf(x[2], weight[2], o.stride.h, o.padding.h, o.dilation.h),
          OutOf(x[3], weight[3], o.stride.w, o.padding.w, o.dilation.w)};
}

void AddBias(const Tensor& bias, const Tensor& y) {
  const int64_t plane = y.numel() / std::max<int64_t>(1, y.size(0) * y.size(1));
  for (int64_t i = 0; bias.defined() && i < y.numel(); ++i) {
    y.data<double>()[i] += bias.data<double>()[i / plane % y.size(1)];
  }
}

OpFn Naive(const Conv2dOptions& o) {
  return [=](const Tensors& in) {
    const Tensor y = Zeros(OutShape(in[0].shape(), in[1].shape(), o), DType::kFloat64);
    EachProduct(in[0].shape(), in[1].shape(), y.shape(), o, [&](int64_t x, int64_t w, int64_t i) {
      y.data<double>()[i] += in[0].data<double>()[x] * in[1].data<double>()[w];
    });
    AddBias(in[2], y);
    return Tensors{y};
  };
}

struct Case {
  Shape x;
  Shape weight;
  Conv2dOptions options;
  bool bias = true;
};

TEST(ConvolutionTest, Conv2d) {
  for (const Case& c : {
           Case{{2, 3, 5, 7}, {4, 3, 3, 3}, {.padding = 1}},
           Case{{1, 2, 6, 5}, {3, 2, 3, 2}, {.stride = {2, 1}, .padding = {0, 1}}, false},
           Case{{2, 3, 7, 8}, {5, 3, 3, 3}, {.stride = 2, .padding = 1}},
           Case{{1, 2, 9, 8}, {3, 2, 3, 2}, {.stride = 3, .dilation = {2, 3}}},
           Case{{3, 4, 3, 3}, {9, 4, 1, 1}, {}},
           Case{{2, 3, 4, 5}, {2, 3, 1, 1}, {.stride = 2}, false},
           Case{{2, 4, 5, 4}, {6, 2, 3, 3}, {.padding = 1, .groups = 2}},
           Case{{2, 3, 6, 5}, {3, 1, 3, 3}, {.padding = 1, .groups = 3}},
           Case{{1, 3, 7, 6}, {3, 1, 3, 2}, {.stride = {2, 3}, .padding = 2, .groups = 3}, false},
           Case{{1, 2, 4, 4}, {4, 1, 2, 2}, {.groups = 2}},
           // A kernel as large as the picture, one that reads nothing but padding at its borders,
           // and one that leaves pixels of x unread.
           Case{{2, 2, 3, 4}, {2, 2, 3, 4}, {}},
           Case{{1, 1, 2, 2}, {2, 1, 2, 2}, {.padding = 3}},
           Case{{1, 2, 5, 5}, {3, 2, 1, 1}, {.stride = 3}},
           Case{{0, 2, 5, 5}, {3, 2, 3, 3}, {}},
       }) {
    CheckOp(
        {.name = "conv2d",
         .op = [&](const Tensors& in) { return Tensors{Conv2d(in[0], in[1], in[2], c.options)}; },
         .reference = Naive(c.options),
         .inputs = {RandomTensor(c.x, 1), RandomTensor(c.weight, 2),
                    c.bias ? RandomTensor({c.weight[0]}, 3) : Tensor()},
         .sum_length = 60});
  }
}

// The gradients too, by the definition: several panels, blocks of depth, tiles and slices.
TEST(ConvolutionTest, LargerThanABlock) {
  for (const Case& c : {
           Case{{2, 50, 9, 11}, {21, 50, 3, 3}, {.padding = 1}},
           Case{{5, 20, 13, 9}, {70, 20, 3, 5}, {.stride = 2, .padding = {1, 2}}},
           Case{{3, 400, 5, 4}, {10, 400, 1, 1}, {}},
           Case{{2, 6, 50, 53}, {8, 3, 3, 3}, {.padding = 1, .groups = 2}},
           Case{{2, 3, 70, 67}, {9, 3, 7, 7}, {.stride = 2, .padding = 3}},
           Case{{3, 5, 40, 37}, {5, 1, 3, 3}, {.stride = 2, .padding = 1, .groups = 5}},
       }) {
    const Tensor dy = RandomTensor(OutShape(c.x, c.weight, c.options), 4);
    const auto parts = [&](const Tensors& in) {
      const Tensor x = RequireGrad(in[0].Detach());
      const Tensor w = RequireGrad(in[1].Detach());
      const Tensor y = Conv2d(x, w, Tensor(), c.options);
      if (!y.device().is_meta()) {
        Backward({y}, {CopyTo(CastCopy(dy, y.dtype()), y.device())});
        return Tensors{y.Detach(), Grad(x), Grad(w)};
      }
      return Tensors{y.Detach(), x.Detach(), w.Detach()};
    };
    for (const Device& device : TestDevices()) {
      for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
        const Tensor x = RandomTensor(c.x, 1);
        const Tensor w = RandomTensor(c.weight, 2);
        const Tensors got =
            parts({CopyTo(CastCopy(x, dtype), device), CopyTo(CastCopy(w, dtype), device)});
        const Tensor y = Naive(c.options)({x, w, Tensor()})[0];
        const Tensor dx = Zeros(c.x, DType::kFloat64);
        const Tensor dw = Zeros(c.weight, DType::kFloat64);
        EachProduct(c.x, c.weight, y.shape(), c.options, [&](int64_t i, int64_t k, int64_t o) {
          dx.data<double>()[i] += dy.data<double>()[o] * w.data<double>()[k];
          dw.data<double>()[k] += dy.data<double>()[o] * x.data<double>()[i];
        });
        const double tolerance = 64 * Epsilon(dtype);
        ExpectClose(got[0], y, tolerance, "y", 1);
        ExpectClose(got[1], dx, tolerance, "dx", 1);
        ExpectClose(got[2], dw, tolerance, "dw", 1);
      }
    }
  }
}

TEST(ConvolutionTest, Conv1d) {
  CheckOp(
      {.name = "conv1d",
       .op =
           [](const Tensors& in) {
             return Tensors{Conv1d(in[0], in[1], in[2],
                                   {.stride = 2, .padding = 2, .dilation = 2, .groups = 2})};
           },
       .reference =
           [](const Tensors& in) {
             const Tensor x = in[0].AsStrided({2, 4, 1, 11}, {44, 11, 11, 1}, 0);
             const Tensor w = in[1].AsStrided({6, 2, 1, 3}, {6, 3, 3, 1}, 0);
             const Tensor y =
                 Naive({.stride = {1, 2}, .padding = {0, 2}, .dilation = {1, 2}, .groups = 2})(
                     {x, w, in[2]})[0];
             return Tensors{y.AsStrided({2, 6, 6}, {36, 6, 1}, 0)};
           },
       .inputs = {RandomTensor({2, 4, 11}, 1), RandomTensor({6, 2, 3}, 2), RandomTensor({6}, 3)},
       .sum_length = 30});
}

// By its definition: the transpose of Conv2d.
TEST(ConvolutionTest, ConvTranspose2d) {
  struct Transpose {
    Shape x;
    Shape weight;
    ConvTranspose2dOptions options;
    Shape y;
  };
  for (const Transpose& c : {
           Transpose{{2, 3, 4, 3}, {3, 2, 2, 2}, {.stride = 2}, {2, 2, 8, 6}},
           Transpose{{1, 4, 3, 5},
                     {4, 3, 3, 3},
                     {.stride = {2, 1}, .padding = 1, .output_padding = {1, 0}, .groups = 2},
                     {1, 6, 6, 5}},
           Transpose{{2, 2, 3, 3}, {2, 1, 3, 2}, {.stride = 3, .groups = 2}, {2, 2, 9, 8}},
           Transpose{{1, 2, 2, 3}, {2, 3, 2, 1}, {.stride = 3, .dilation = 2}, {1, 3, 6, 7}},
       }) {
    const Conv2dOptions forward{.stride = c.options.stride,
                                .padding = c.options.padding,
                                .dilation = c.options.dilation,
                                .groups = c.options.groups};
    CheckOp({.name = "conv_transpose2d",
             .op =
                 [&](const Tensors& in) {
                   return Tensors{ConvTranspose2d(in[0], in[1], in[2], c.options)};
                 },
             .reference =
                 [&](const Tensors& in) {
                   const Tensor y = Zeros(c.y, DType::kFloat64);
                   EachProduct(c.y, c.weight, c.x, forward, [&](int64_t i, int64_t k, int64_t o) {
                     y.data<double>()[i] += in[0].data<double>()[o] * in[1].data<double>()[k];
                   });
                   AddBias(in[2], y);
                   return Tensors{y};
                 },
             .inputs = {RandomTensor(c.x, 1), RandomTensor(c.weight, 2), RandomTensor({c.y[1]}, 3)},
             .sum_length = 40});
  }
}

// A picture has the bits that it has alone, and threads change nothing.
TEST(ConvolutionTest, BitsDoNotDependOnThreadsOrTheBatch) {
  const Tensor x = CastCopy(RandomTensor({5, 7, 30, 31}, 1), DType::kFloat32);
  const Tensor w = CastCopy(RandomTensor({11, 7, 3, 3}, 2), DType::kFloat32);
  const Conv2dOptions options{.stride = 2, .padding = 1};
  const auto run = [&](int threads) {
    SetNumThreads(threads);
    const Tensor leaf = RequireGrad(x.Detach());
    const Tensor weight = RequireGrad(w.Detach());
    const Tensor y = Conv2d(leaf, weight, Tensor(), options);
    Backward({y}, {y.Detach()});
    SetNumThreads(AvailableCores());
    return std::vector{y.ToVector<float>(), Grad(leaf).ToVector<float>(),
                       Grad(weight).ToVector<float>()};
  };
  const auto one = run(1);
  EXPECT_EQ(run(3), one);
  const Tensor last = x.AsStrided({1, 7, 30, 31}, x.strides(), 4 * 7 * 30 * 31);
  const std::vector<float> alone = Conv2d(last, w, Tensor(), options).ToVector<float>();
  EXPECT_TRUE(
      std::equal(alone.begin(), alone.end(), one[0].end() - static_cast<int64_t>(alone.size())));
}

TEST(ConvolutionTest, RefusesWhatDoesNotFit) {
  const Tensor x = Zeros({1, 4, 5, 5});
  EXPECT_THROW(Conv2d(x, Zeros({2, 3, 3, 3}), Tensor()), Error);
  EXPECT_THROW(Conv2d(x, Zeros({2, 4, 6, 6}), Tensor()), Error);
  EXPECT_THROW(Conv2d(x, Zeros({3, 2, 3, 3}), Tensor(), {.groups = 2}), Error);
  EXPECT_THROW(Conv2d(x, Zeros({2, 4, 3, 3}), Zeros({3})), Error);
  EXPECT_THROW(Conv2d(x, Zeros({2, 4, 3, 3}), Tensor(), {.stride = 0}), Error);
  EXPECT_THROW(Conv2d(x, Zeros({2, 4, 3, 3}), Tensor(), {.padding = -1}), Error);
  EXPECT_THROW(Conv2d(x, Zeros({2, 4, 3, 3}, DType::kFloat64), Tensor()), Error);
  EXPECT_THROW(Conv1d(x, Zeros({2, 4, 3}), Tensor()), Error);
  EXPECT_THROW(ConvTranspose2d(x, Zeros({3, 2, 3, 3}), Tensor()), Error);
  EXPECT_THROW(ConvTranspose2d(x, Zeros({4, 2, 3, 3}), Tensor(), {.output_padding = 1}), Error);
}

}  // namespace
}  // namespace tessera
