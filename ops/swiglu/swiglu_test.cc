// SPDX-License-Identifier: Apache-2.0
#include "ops/swiglu/swiglu.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/cpu_isa.h"
#include "core/thread_pool.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

TEST(SwiGluTest, IsSiluOfTheGateTimesUp) {
  for (const Shape& shape : {Shape{1}, Shape{3, 5, 7}, Shape{4, 16}, Shape{2, 4097}, Shape{0, 2}}) {
    CheckOp({.name = "swiglu",
             .op = [](const Tensors& in) { return Tensors{SwiGlu(in[0], in[1])}; },
             .reference =
                 [](const Tensors& in) {
                   Tensor y = EmptyLike(in[0]);
                   for (int64_t i = 0; i < y.numel(); ++i) {
                     const double g = in[0].data<double>()[i];
                     y.data<double>()[i] = g / (1 + std::exp(-g)) * in[1].data<double>()[i];
                   }
                   return Tensors{y};
                 },
             .inputs = {RandomTensor(shape, 1, 3.0), RandomTensor(shape, 2)}});
  }
}

// Large gates neither overflow nor give NaN.
TEST(SwiGluTest, SaturatesAtTheEnds) {
  const Tensor gate = Tensor::FromVector<float>({-1000, -90, 0, 90, 1000}, {5});
  EXPECT_EQ(SwiGlu(gate, Full({5}, 2.0)).ToVector<float>()[4], 2000.0f);
  const std::vector<float> y = SwiGlu(gate, Full({5}, 2.0)).ToVector<float>();
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(y[i], 0.0f, 1e-30) << i;
}

TEST(SwiGluTest, BitsDependNeitherOnThreadsNorOnWhereAPartBegins) {
  const int threads = NumThreads();
  const Tensor gate = CastCopy(RandomTensor({70001}, 1), DType::kFloat32);
  const Tensor up = CastCopy(RandomTensor({70001}, 2), DType::kFloat32);
  SetNumThreads(1);
  const std::vector<float> one = SwiGlu(gate, up).ToVector<float>();
  SetNumThreads(4);
  EXPECT_EQ(SwiGlu(gate, up).ToVector<float>(), one);
  SetNumThreads(threads);
  const std::vector<float> part =
      SwiGlu(Slice(gate, 0, 5, 40), Slice(up, 0, 5, 40)).ToVector<float>();
  EXPECT_EQ(part, std::vector<float>(one.begin() + 5, one.begin() + 45));
}

TEST(SwiGluTest, RefusesMisuse) {
  EXPECT_THROW(SwiGlu(Zeros({3}), Zeros({4})), Error);
  EXPECT_THROW(SwiGlu(Zeros({3}), Zeros({3}, DType::kFloat64)), Error);
  EXPECT_THROW(SwiGlu(Arange(3), Arange(3)), Error);
}

}  // namespace
}  // namespace tessera
