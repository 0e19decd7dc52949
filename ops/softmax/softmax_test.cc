#include "ops/softmax/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/testing/op_check.h"

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
