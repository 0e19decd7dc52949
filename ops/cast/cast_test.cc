// SPDX-License-Identifier: Apache-2.0
#include "ops/cast/cast.h"

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "ops/testing/op_check.h"

namespace tessera {
namespace {

TEST(CastTest, ToWiderAndBackKeepsValuesAndGradients) {
  CheckOp({.name = "cast",
           .op = [](const Tensors& in) { return Tensors{Cast(in[0], DType::kFloat64)}; },
           .reference = [](const Tensors& in) { return Tensors{in[0].ContiguousCopy()}; },
           .inputs = {RandomTensor({3, 7}, 1)}});
}

TEST(CastTest, GradientsComeBackInTheInputsDtype) {
  const Tensor x = RequireGrad(Full({3}, 1.0, DType::kBFloat16), DType::kBFloat16);
  const Tensor y = Cast(x, DType::kFloat32);
  Backward({y}, {Full({3}, 1.00390625)});
  EXPECT_EQ(Grad(x).dtype(), DType::kBFloat16);
  EXPECT_EQ(Grad(x).ToVector<float>()[0], 1.0f);
}

TEST(CastTest, IntegersAndBooleans) {
  const Tensor x = Tensor::FromVector<float>({-1.7f, 0.0f, 2.9f}, {3});
  EXPECT_EQ(Cast(x, DType::kInt64).ToVector<int64_t>(), (std::vector<int64_t>{-1, 0, 2}));
  EXPECT_EQ(Cast(x, DType::kBool).ToVector<int>(), (std::vector<int>{1, 0, 1}));
  const Tensor leaf = RequireGrad(CastCopy(x, DType::kFloat64));
  EXPECT_FALSE(RequiresGrad(Cast(leaf, DType::kInt64)));
  EXPECT_TRUE(Cast(x, DType::kFloat32).is_same(x));
  EXPECT_TRUE(ToDevice(x, Device::Cpu()).is_same(x));
}

TEST(CastTest, ToDeviceCarriesShapesAndTheTape) {
  const Tensor leaf = RequireGrad(Zeros({2, 3}));
  const Tensor meta = ToDevice(leaf, Device::Meta());
  EXPECT_EQ(meta.shape(), (Shape{2, 3}));
  EXPECT_TRUE(meta.device().is_meta());
  EXPECT_TRUE(RequiresGrad(meta));
  EXPECT_THROW(ToDevice(leaf, Device::Cuda(63)), Error);  // not part of this program
}

}  // namespace
}  // namespace tessera
