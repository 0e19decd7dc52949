// SPDX-License-Identifier: Apache-2.0
#include "ops/softmax/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "autograd/autograd.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

// Over the middle of [outer, n, inner], by the definition.
OpFn Naive(int64_t outer, int64_t n, int64_t inner, bool log) {
  return [=](const Tensors& in) {
    Tensor y = EmptyLike(in[0]);
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < inner; ++i) {
        const auto at = [&](int64_t j) { return (o * n + j) * inner + i; };
        double sum = 0;
        for (int64_t j = 0; j < n; ++j) sum += std::exp(in[0].data<double>()[at(j)]);
        for (int64_t j = 0; j < n; ++j) {
          const double x = in[0].data<double>()[at(j)];
          y.data<double>()[at(j)] = log ? x - std::log(sum) : std::exp(x) / sum;
        }
      }
    }
    return Tensors{y};
  };
}

TEST(SoftmaxTest, AlongTheLastAndTheMiddle) {
  for (const bool log : {false, true}) {
    const auto op = [log](int dim) {
      return [=](const Tensors& in) {
        return Tensors{log ? LogSoftmax(in[0], dim) : Softmax(in[0], dim)};
      };
    };
    for (const int64_t n : {1, 2, 17, 130}) {
      CheckOp({.name = Concat(log ? "log_softmax " : "softmax ", n),
               .op = op(-1),
               .reference = Naive(3, n, 1, log),
               .inputs = {RandomTensor({3, n}, 1, 2.0)},
               .sum_length = static_cast<double>(n),
               .scale_floor = 1});
    }
    CheckOp({.name = log ? "log_softmax middle" : "softmax middle",
             .op = op(1),
             .reference = Naive(2, 5, 3, log),
             .inputs = {RandomTensor({2, 5, 3}, 2)},
             .sum_length = 5,
             .scale_floor = 1});
  }
}

// Rows that a block takes several times over, by groups or one by one, and rows that do not begin
// where groups may.
TEST(SoftmaxTest, LongRows) {
  for (const bool log : {false, true}) {
    for (const int64_t n : {24, 4104, 4099}) {
      for (const int64_t begin : {0, 1}) {
        const auto op = [=](const Tensors& in) {
          const Tensor x = Slice(Reshape(in[0], {2 * n + 8}), 0, begin, 2 * n);
          const Tensor rows = Reshape(x, {2, n});
          return Tensors{log ? LogSoftmax(rows, -1) : Softmax(rows, -1)};
        };
        CheckOp({.name = Concat(log ? "log_softmax " : "softmax ", n, " from ", begin),
                 .op = op,
                 .reference =
                     [=](const Tensors& in) {
                       const Tensor x = Slice(in[0], 0, begin, 2 * n).ContiguousCopy();
                       return Tensors{Reshape(Naive(2, n, 1, log)({x})[0], {2, n})};
                     },
                 .inputs = {RandomTensor({2 * n + 8}, 1, 2.0)},
                 .sum_length = static_cast<double>(n),
                 .check_gradient = n < 100});
      }
      // The gradient of long rows, against float64 on the CPU.
      const auto gradient = [&](DType dtype, const Device& device) {
        const Tensor x = RequireGrad(CopyTo(CastCopy(RandomTensor({2, n}, 1, 2.0), dtype), device));
        const Tensor y = log ? LogSoftmax(x, -1) : Softmax(x, -1);
        Backward({y}, {CopyTo(CastCopy(RandomTensor({2, n}, 2), dtype), device)});
        return Grad(x);
      };
      for (const Device& device : TestDevices()) {
        for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
          ExpectClose(gradient(dtype, device), gradient(DType::kFloat64, Device::Cpu()),
                      64 * Epsilon(dtype), Concat("gradient of ", n, " ", dtype, " ", device), 1);
        }
      }
    }
  }
}

TEST(SoftmaxTest, LargestAndNanShow) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Device& device : TestDevices()) {
    for (const int64_t n : {7, 64}) {
      const Tensor x = Zeros({2, n});
      x.data<float>()[3] = nan;
      x.data<float>()[n + 2] = 1e30f;
      const std::vector<float> y = Softmax(CopyTo(x, device), -1).ToVector<float>();
      for (int64_t i = 0; i < n; ++i) {
        EXPECT_TRUE(std::isnan(y[static_cast<size_t>(i)])) << device;
        EXPECT_EQ(y[static_cast<size_t>(n + i)], i == 2 ? 1.0f : 0.0f) << device;
      }
    }
    const float inf = std::numeric_limits<float>::infinity();
    const Tensor masked = Softmax(CopyTo(Full({2, 16}, -inf), device), -1);
    EXPECT_TRUE(std::isnan(masked.ToVector<float>()[0])) << device;
  }
}

TEST(SoftmaxTest, LargeValuesMasksAndNothing) {
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor x = Tensor::FromVector<float>({1e30f, 1e30f, -inf, 3e38f, 0, -3e38f}, {2, 3});
  EXPECT_EQ(Softmax(x, -1).ToVector<float>(), (std::vector<float>{0.5f, 0.5f, 0, 1, 0, 0}));
  EXPECT_TRUE(std::isnan(Softmax(Full({1, 2}, -inf), -1).ToVector<float>()[0]));
  EXPECT_EQ(Softmax(Zeros({2, 0}), -1).numel(), 0);
  EXPECT_THROW(Softmax(Zeros({2, 3}), 2), Error);
  EXPECT_THROW(Softmax(Arange(3), 0), Error);
}

}  // namespace
}  // namespace tessera
