// SPDX-License-Identifier: Apache-2.0
#include "ops/channel_norm/channel_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "autograd/autograd.h"
#include "core/thread_pool.h"
#include "ops/testing/op_check.h"

namespace tessera {
namespace {

constexpr double kEps = 1e-3;

// y of x [N, C, P] where elements with equal set(n, c) are normalised together, or by what is
// given: in[3], in[4].
template <typename Set>
Tensor Naive(const Tensors& in, int64_t sets, Set set, bool given = false) {
  const Tensor& x = in[0];
  const int64_t c = x.size(1), plane = x.numel() / (x.size(0) * c);
  std::vector<double> mean(static_cast<size_t>(sets)), variance(mean), count(mean);
  const auto each = [&](auto f) {
    for (int64_t i = 0; i < x.numel(); ++i) {
      f(x.data<double>()[i], static_cast<size_t>(set(i / plane / c, i / plane % c)), i);
    }
  };
  each([&](double, size_t s, int64_t) { count[s] += 1; });
  each([&](double v, size_t s, int64_t) { mean[s] += v / count[s]; });
  each([&](double v, size_t s, int64_t) {
    variance[s] += (v - mean[s]) * (v - mean[s]) / count[s];
  });
  if (given) mean = in[3].ToVector<double>(), variance = in[4].ToVector<double>();
  const Tensor y = EmptyLike(x);
  each([&](double v, size_t s, int64_t i) {
    const int64_t channel = i / plane % c;
    const double w = in[1].defined() ? in[1].data<double>()[channel] : 1.0;
    const double b = in[2].defined() ? in[2].data<double>()[channel] : 0.0;
    y.data<double>()[i] = (v - mean[s]) / std::sqrt(variance[s] + kEps) * w + b;
  });
  return y;
}

struct Case {
  Shape shape;
  bool affine;
};
const Case kCases[] = {{{3, 4, 5, 3}, true},
                       {{2, 6, 37}, true},
                       {{5, 2}, true},
                       {{2, 4, 1, 2}, false},
                       {{1, 2, 67}, true}};

Tensors Inputs(const Case& c) {
  const int64_t channels = c.shape[1];
  return {RandomTensor(c.shape, 1), c.affine ? RandomTensor({channels}, 2) : Tensor(),
          c.affine ? RandomTensor({channels}, 3) : Tensor()};
}

TEST(ChannelNormTest, BatchNorm) {
  for (const Case& c : kCases) {
    CheckOp(
        {.name = "batch_norm",
         .op = [](const Tensors& in) { return Tensors{BatchNorm(in[0], in[1], in[2], kEps).y}; },
         .reference =
             [](const Tensors& in) {
               return Tensors{Naive(in, in[0].size(1), [](int64_t, int64_t c) { return c; })};
             },
         .inputs = Inputs(c),
         .sum_length = 100,
         // Two elements that rounding brings close divide by a small deviation.
         .half_precision = c.affine});
  }
}

TEST(ChannelNormTest, GivenStatistics) {
  for (const Case& c : kCases) {
    Tensors inputs = Inputs(c);
    const int64_t channels = c.shape[1];
    std::vector<double> variance(static_cast<size_t>(channels));
    for (size_t i = 0; i < variance.size(); ++i) variance[i] = 0.25 + static_cast<double>(i);
    const Tensor mean = RandomTensor({channels}, 4);
    const Tensor given = Tensor::FromVector<double>(variance, {channels});
    CheckOp({.name = "normalise_channels",
             .op =
                 [&](const Tensors& in) {
                   const DType wide = AccumulateDType(in[0].dtype());
                   const auto there = [&](const Tensor& t) {
                     const Tensor cast = CastCopy(t, wide);
                     return in[0].device().is_meta() ? Empty(t.shape(), wide, in[0].device())
                                                     : CopyTo(cast, in[0].device());
                   };
                   return Tensors{
                       NormaliseChannels(in[0], there(mean), there(given), in[1], in[2], kEps)};
                 },
             .reference =
                 [&](const Tensors& in) {
                   return Tensors{Naive(
                       {in[0], in[1], in[2], mean, given}, channels,
                       [](int64_t, int64_t c) { return c; }, true)};
                 },
             .inputs = inputs,
             .sum_length = 100});
  }
}

TEST(ChannelNormTest, GroupNorm) {
  for (const Case& c : kCases) {
    for (const int64_t groups : {int64_t{1}, int64_t{2}}) {
      if (c.shape.numel() / c.shape[0] / groups < 3) continue;
      CheckOp({.name = "group_norm",
               .op =
                   [&](const Tensors& in) {
                     return Tensors{GroupNorm(in[0], groups, in[1], in[2], kEps)};
                   },
               .reference =
                   [&](const Tensors& in) {
                     const int64_t size = in[0].size(1) / groups;
                     return Tensors{Naive(in, in[0].size(0) * groups, [=](int64_t n, int64_t c) {
                       return n * groups + c / size;
                     })};
                   },
               .inputs = Inputs(c),
               .sum_length = 100});
    }
  }
}

TEST(ChannelNormTest, GivesTheStatisticsOfTheBatch) {
  const Tensor x = Tensor::FromVector<float>({1, 3, 10, 10, 5, 7, 10, 14}, {2, 2, 2});
  const BatchNormed b = BatchNorm(x, Tensor(), Tensor(), 0);
  EXPECT_EQ(b.mean.ToVector<float>(), (std::vector<float>{4, 11}));
  EXPECT_EQ(b.variance.ToVector<float>(), (std::vector<float>{5, 3}));
}

// A mean that is large beside the deviation costs no more digits than the input has lost.
TEST(ChannelNormTest, LargeMean) {
  std::vector<float> values;
  for (int i = 0; i < 1000; ++i) values.push_back(10000.0f + static_cast<float>(i % 8));
  const BatchNormed b =
      BatchNorm(Tensor::FromVector<float>(values, {10, 1, 100}), Tensor(), Tensor(), 0);
  EXPECT_NEAR(b.variance.Item(), 5.25, 0.01);
}

TEST(ChannelNormTest, BitsDoNotDependOnThreads) {
  const auto run = [](int threads) {
    SetNumThreads(threads);
    const Tensor x = RequireGrad(CastCopy(RandomTensor({7, 30, 300}, 7), DType::kFloat32));
    const Tensor w = RequireGrad(Full({30}, 1.5));
    const Tensor y = BatchNorm(x, w, Tensor(), kEps).y;
    Backward({y}, {x.Detach()});
    SetNumThreads(AvailableCores());
    return std::vector{y.ToVector<float>(), Grad(x).ToVector<float>(), Grad(w).ToVector<float>()};
  };
  EXPECT_EQ(run(1), run(3));
}

TEST(ChannelNormTest, RefusesWhatDoesNotFit) {
  EXPECT_THROW(BatchNorm(Zeros({3}), Tensor(), Tensor(), kEps), Error);
  EXPECT_THROW(BatchNorm(Zeros({0, 3, 2}), Tensor(), Tensor(), kEps), Error);
  EXPECT_THROW(BatchNorm(Zeros({2, 3}), Zeros({2}), Tensor(), kEps), Error);
  EXPECT_THROW(GroupNorm(Zeros({2, 3, 4}), 2, Tensor(), Tensor(), kEps), Error);
  EXPECT_THROW(NormaliseChannels(Zeros({2, 3}), Zeros({2}), Zeros({3}), Tensor(), Tensor(), kEps),
               Error);
}

}  // namespace
}  // namespace tessera
