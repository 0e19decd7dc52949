// SPDX-License-Identifier: Apache-2.0
#include "ops/pooling/pooling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/pooling/interpolate.h"
#include "ops/testing/op_check.h"

namespace tessera {
namespace {

// Calls f(input index, output index, inside) for each element of each window of [N, C, H, W].
template <typename F>
void EachInWindow(const Shape& x, const Shape& y, const MaxPool2dOptions& o, F f) {
  const Extent2d stride = o.stride.value_or(o.kernel);
  for (int64_t i = 0; i < y.numel(); ++i) {
    const int64_t plane = i / (y[2] * y[3]), h = i / y[3] % y[2], w = i % y[3];
    for (int64_t k = 0; k < o.kernel.h * o.kernel.w; ++k) {
      const int64_t in_h = h * stride.h - o.padding.h + k / o.kernel.w * o.dilation.h;
      const int64_t in_w = w * stride.w - o.padding.w + k % o.kernel.w * o.dilation.w;
      const bool inside = in_h >= 0 && in_h < x[2] && in_w >= 0 && in_w < x[3];
      const bool padded = in_h < x[2] + o.padding.h && in_w < x[3] + o.padding.w;
      f((plane * x[2] + in_h) * x[3] + in_w, i, inside, padded);
    }
  }
}

struct Case {
  Shape x;
  MaxPool2dOptions options;
  Shape y;
};

// Sizes as PyTorch gives them.
std::vector<Case> Cases() {
  return {
      {{2, 3, 6, 7}, {.kernel = 2}, {2, 3, 3, 3}},
      {{1, 2, 7, 8}, {.kernel = 3, .stride = Extent2d(2), .padding = 1}, {1, 2, 4, 4}},
      {{2, 1, 6, 7}, {.kernel = {3, 2}, .stride = Extent2d(2, 3), .ceil_mode = true}, {2, 1, 3, 3}},
      {{1, 2, 5, 5},
       {.kernel = 2, .stride = Extent2d(2), .padding = 1, .ceil_mode = true},
       {1, 2, 3, 3}},
      {{1, 1, 4, 9},
       {.kernel = 2, .stride = Extent2d(3), .padding = 1, .ceil_mode = true},
       {1, 1, 2, 4}},
  };
}

TEST(PoolingTest, MaxPool2d) {
  std::vector<Case> cases = Cases();
  cases.push_back({{1, 2, 9, 8},
                   {.kernel = {2, 3}, .stride = Extent2d(1), .padding = {1, 0}, .dilation = {3, 2}},
                   {1, 2, 8, 4}});
  for (const Case& c : cases) {
    CheckOp({.name = "max_pool2d",
             .op = [&](const Tensors& in) { return Tensors{MaxPool2d(in[0], c.options)}; },
             .reference =
                 [&](const Tensors& in) {
                   const Tensor y = Full(c.y, -HUGE_VAL, DType::kFloat64);
                   EachInWindow(c.x, c.y, c.options, [&](int64_t i, int64_t o, bool inside, bool) {
                     if (!inside) return;
                     double& best = y.data<double>()[o];
                     best = std::max(best, in[0].data<double>()[i]);
                   });
                   return Tensors{y};
                 },
             .inputs = {RandomTensor(c.x, 1)},
             // Elements that rounding makes equal change places.
             .half_precision = false});
  }
}

TEST(PoolingTest, AvgPool2d) {
  for (const Case& c : Cases()) {
    for (const bool with_padding : {true, false}) {
      const MaxPool2dOptions& o = c.options;
      const AvgPool2dOptions options{.kernel = o.kernel,
                                     .stride = o.stride,
                                     .padding = o.padding,
                                     .ceil_mode = o.ceil_mode,
                                     .count_include_pad = with_padding};
      CheckOp({.name = "avg_pool2d",
               .op = [&](const Tensors& in) { return Tensors{AvgPool2d(in[0], options)}; },
               .reference =
                   [&](const Tensors& in) {
                     const Tensor y = Zeros(c.y, DType::kFloat64);
                     std::vector<double> count(static_cast<size_t>(y.numel()));
                     EachInWindow(c.x, c.y, o, [&](int64_t i, int64_t out, bool in_x, bool in_pad) {
                       if (in_x) y.data<double>()[out] += in[0].data<double>()[i];
                       if (in_x || (with_padding && in_pad)) count[static_cast<size_t>(out)] += 1;
                     });
                     for (size_t i = 0; i < count.size(); ++i) y.data<double>()[i] /= count[i];
                     return Tensors{y};
                   },
               .inputs = {RandomTensor(c.x, 1)},
               .sum_length = 16});
    }
  }
}

TEST(PoolingTest, OneDim) {
  const Tensor x = Tensor::FromVector<float>({1, 5, 2, 8, 3, 4, 0}, {1, 1, 7});
  EXPECT_EQ(MaxPool1d(x, {.kernel = 3, .stride = 2, .padding = 1}).ToVector<float>(),
            (std::vector<float>{5, 8, 8, 4}));
  EXPECT_EQ(MaxPool1d(x, {.kernel = 2, .stride = 1, .dilation = 3}).ToVector<float>(),
            (std::vector<float>{8, 5, 4, 8}));
  EXPECT_EQ(AvgPool1d(x, {.kernel = 2}).ToVector<float>(), (std::vector<float>{3, 5, 3.5}));
  EXPECT_EQ(AvgPool1d(x, {.kernel = 4, .padding = 1, .ceil_mode = true, .count_include_pad = false})
                .ToVector<float>(),
            (std::vector<float>{8.0f / 3, 3.75f}));
  CheckOp({.name = "max_pool1d",
           .op = [](const Tensors& in) { return Tensors{MaxPool1d(in[0], {.kernel = 3})}; },
           .reference = nullptr,
           .inputs = {RandomTensor({2, 3, 11}, 1)},
           .half_precision = false});
  CheckOp({.name = "avg_pool1d",
           .op = [](const Tensors& in) { return Tensors{AvgPool1d(in[0], {.kernel = 3})}; },
           .reference = nullptr,
           .inputs = {RandomTensor({2, 3, 11}, 1)}});
}

TEST(PoolingTest, AdaptiveAvgPool2d) {
  for (const Extent2d size : {Extent2d(1), Extent2d(3, 2), Extent2d(7, 9)}) {
    CheckOp({.name = "adaptive_avg_pool2d",
             .op = [&](const Tensors& in) { return Tensors{AdaptiveAvgPool2d(in[0], size)}; },
             .reference =
                 [&](const Tensors& in) {
                   const Tensor y = Zeros({2, 3, size.h, size.w}, DType::kFloat64);
                   for (int64_t o = 0; o < y.numel(); ++o) {
                     const int64_t h = o / size.w % size.h, w = o % size.w;
                     const int64_t top = h * 7 / size.h, left = w * 5 / size.w;
                     const int64_t bottom = (h * 7 + 7 + size.h - 1) / size.h;
                     const int64_t right = (w * 5 + 5 + size.w - 1) / size.w;
                     for (int64_t i = top; i < bottom; ++i) {
                       for (int64_t j = left; j < right; ++j) {
                         y.data<double>()[o] +=
                             in[0].data<double>()[(o / (size.h * size.w) * 7 + i) * 5 + j] /
                             static_cast<double>((bottom - top) * (right - left));
                       }
                     }
                   }
                   return Tensors{y};
                 },
             .inputs = {RandomTensor({2, 3, 7, 5}, 1)},
             .sum_length = 35});
  }
}

// Where pixel i of n lies among m.
double Place(int64_t i, int64_t n, int64_t m, bool corners) {
  if (corners) return n == 1 ? 0 : static_cast<double>(i * (m - 1)) / static_cast<double>(n - 1);
  return std::max(
      0.0, (static_cast<double>(i) + 0.5) * static_cast<double>(m) / static_cast<double>(n) - 0.5);
}

TEST(PoolingTest, InterpolateBilinear) {
  for (const Extent2d size : {Extent2d(8, 10), Extent2d(3, 13), Extent2d(1, 2)}) {
    for (const bool corners : {false, true}) {
      CheckOp(
          {.name = "interpolate bilinear",
           .op =
               [&](const Tensors& in) {
                 return Tensors{Interpolate(
                     in[0], size, {.mode = Interpolation::kBilinear, .align_corners = corners})};
               },
           .reference =
               [&](const Tensors& in) {
                 const Tensor y = Zeros({2, 1, size.h, size.w}, DType::kFloat64);
                 for (int64_t o = 0; o < y.numel(); ++o) {
                   const double h = Place(o / size.w % size.h, size.h, 4, corners);
                   const double w = Place(o % size.w, size.w, 5, corners);
                   for (int64_t i = 0; i < 20; ++i) {  // tents around the place
                     const double dh = std::abs(std::min(h, 3.0) - static_cast<double>(i / 5));
                     const double dw = std::abs(std::min(w, 4.0) - static_cast<double>(i % 5));
                     y.data<double>()[o] += std::max(0.0, 1 - dh) * std::max(0.0, 1 - dw) *
                                            in[0].data<double>()[o / (size.h * size.w) * 20 + i];
                   }
                 }
                 return Tensors{y};
               },
           .inputs = {RandomTensor({2, 1, 4, 5}, 1)},
           .sum_length = 16});
    }
  }
}

TEST(PoolingTest, InterpolateNearest) {
  const Tensor x = Tensor::FromVector<float>({1, 2, 3, 4, 5, 6}, {1, 1, 2, 3});
  EXPECT_EQ(Interpolate(x, {4, 5}).ToVector<float>(),
            (std::vector<float>{1, 1, 2, 2, 3, 1, 1, 2, 2, 3, 4, 4, 5, 5, 6, 4, 4, 5, 5, 6}));
  EXPECT_EQ(Interpolate(x, {1, 2}).ToVector<float>(), (std::vector<float>{1, 2}));
  CheckOp({.name = "interpolate nearest",
           .op =
               [](const Tensors& in) {
                 return Tensors{Interpolate(in[0], {7, 2})};
               },
           .reference = nullptr,
           .inputs = {RandomTensor({2, 2, 3, 4}, 1)},
           .sum_length = 16});
}

// Values of PyTorch's F.interpolate(scale_factor=...).
TEST(PoolingTest, InterpolatesByAScale) {
  constexpr auto kNearest = Interpolation::kNearest;
  constexpr auto kBilinear = Interpolation::kBilinear;
  // The first row of a picture of four equal ones.
  const auto row = [](double scale, Interpolation mode) {
    std::vector<float> values;
    for (int h = 0; h < 4; ++h) values.insert(values.end(), {1, 4, 2, 8, 5});
    const Extent2d size(static_cast<int64_t>(scale * 4), static_cast<int64_t>(scale * 5));
    std::vector<float> y = Interpolate(Tensor::FromVector<float>(values, {1, 1, 4, 5}), size,
                                       {.mode = mode, .scale = scale})
                               .ToVector<float>();
    y.resize(static_cast<size_t>(size.w));
    return y;
  };
  using Values = std::vector<float>;
  EXPECT_EQ(row(1.3, kNearest), (Values{1, 1, 4, 2, 8, 8}));
  EXPECT_EQ(row(0.75, kNearest), (Values{1, 4, 2}));
  EXPECT_EQ(row(2.7, kNearest), (Values{1, 1, 1, 4, 4, 4, 2, 2, 2, 8, 8, 5, 5}));
  EXPECT_EQ(row(1.1, kNearest), (Values{1, 4, 2, 8, 5}));
  EXPECT_EQ(row(2.1, kNearest), (Values{1, 1, 4, 4, 2, 2, 8, 8, 5, 5}));
  const auto expect_near = [](const Values& y, const Values& expected) {
    ASSERT_EQ(y.size(), expected.size());
    for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected[i], 2e-6) << i;
  };
  expect_near(row(1.3, kBilinear), {1, 2.961538F, 3.153846F, 3.153846F, 7.769231F, 5.807692F});
  expect_near(row(0.75, kBilinear), {1.5, 3, 7});
  expect_near(row(1.1, kBilinear), {1, 4, 2, 8, 5});
  const Tensor x = Tensor::FromVector<float>({1, 4, 2, 8, 5, 7}, {1, 1, 2, 3});
  expect_near(Interpolate(x, {3, 5}, {.mode = kBilinear, .scale = 1.9}).ToVector<float>(),
              {1, 1.868421F, 3.447369F, 3.315789F, 2.263158F, 3.026316F, 3.391967F, 4.056787F,
               4.001385F, 3.558172F, 6.710526F, 6.16205F, 5.16482F, 5.247923F, 5.912743F});
  for (const Interpolation mode : {kNearest, kBilinear}) {
    CheckOp({.name = "interpolate by a scale",
             .op =
                 [&](const Tensors& in) {
                   return Tensors{Interpolate(in[0], {5, 6}, {.mode = mode, .scale = 1.7})};
                 },
             .reference = nullptr,
             .inputs = {RandomTensor({2, 2, 3, 4}, 1)},
             .sum_length = 16});
  }
}

TEST(PoolingTest, NanIsTheLargestAndTheFirstOfEqualsWins) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::FromVector<float>({1, nan, 3, 2, 2, 2}, {1, 1, 6});
  const std::vector<float> y = MaxPool1d(x, {.kernel = 3}).ToVector<float>();
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], 2);
}

TEST(PoolingTest, RefusesWhatDoesNotFit) {
  const Tensor x = Zeros({1, 2, 5, 5});
  EXPECT_THROW(MaxPool2d(x, {.kernel = 6}), Error);
  EXPECT_THROW(MaxPool1d(Zeros({1, 1, 1}), {.kernel = 2, .padding = 1, .dilation = 2}), Error);
  const Tensor larger =
      MaxPool2d(Zeros({1, 1, 2, 2}), {.kernel = 3, .stride = Extent2d(2), .ceil_mode = true});
  EXPECT_EQ(larger.shape(), (Shape{1, 1, 1, 1}));
  EXPECT_THROW(MaxPool2d(x, {.kernel = 2, .padding = 2}), Error);
  EXPECT_THROW(MaxPool2d(x, {.kernel = 2, .stride = Extent2d(0)}), Error);
  EXPECT_THROW(AvgPool2d(Zeros({2, 5, 5}), {.kernel = 2}), Error);
  EXPECT_THROW(AvgPool1d(x, {.kernel = 2}), Error);
  EXPECT_THROW(AdaptiveAvgPool2d(x, 0), Error);
  EXPECT_THROW(Interpolate(x, 0), Error);
  EXPECT_THROW(Interpolate(x, 7, {.align_corners = true}), Error);
  for (const double scale : {-2.0, 1.3, std::nan("")}) {
    EXPECT_THROW(Interpolate(x, 7, {.scale = scale}), Error) << scale;
  }
}

}  // namespace
}  // namespace tessera
