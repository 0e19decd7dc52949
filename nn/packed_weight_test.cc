// SPDX-License-Identifier: Apache-2.0
#include "nn/packed_weight.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "autograd/autocast.h"
#include "autograd/autograd.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/weight.h"
#include "ops/random/random.h"

namespace tessera::nn {
namespace {

constexpr int64_t kIn = 390;

Tensor Rows(int64_t count, DType dtype = DType::kFloat32) {
  return Randn({count, 1, kIn}, RandomKey::FromSeed(static_cast<uint64_t>(count)),
               {.dtype = dtype});
}

std::unique_ptr<ReplicatedLinear> MakeLinear(LinearLayout layout, DType dtype = DType::kFloat32) {
  return std::make_unique<ReplicatedLinear>(
      LinearConfig{.in_features = kIn, .out_features = 101, .layout = layout},
      Scope::Root({.dtype = dtype, .seed = 3}));
}

TEST(PackedWeightTest, BitsAndGradientsAreThoseOfTheWeight) {
  for (const LinearLayout layout : {LinearLayout::kOutIn, LinearLayout::kInOut}) {
    const auto plain = MakeLinear(layout);
    const auto packed = MakeLinear(layout);
    PackWeights(*packed);
    ASSERT_FALSE(IsDense(*packed->FindParameter("weight")));
    for (const int64_t rows : {1, 4, 9, 23, 130}) {
      const Tensor x = Rows(rows);
      {
        const NoGrad no_grad;
        const Tensor y = packed->Forward(x);
        EXPECT_EQ(y.shape(), (Shape{rows, 1, 101}));
        EXPECT_EQ(y.ToVector<float>(), plain->Forward(x).ToVector<float>()) << rows << " rows";
      }
      for (const auto& layer : {plain.get(), packed.get()}) {
        layer->ZeroGrad();
        Backward({layer->Forward(x)}, {Rows(rows).AsStrided({rows, 1, 101}, {kIn, kIn, 1}, 0)});
      }
      const auto gradient = [](Module& layer) {
        return Grad(layer.FindParameter("weight")->tensor).ToVector<float>();
      };
      EXPECT_EQ(gradient(*packed), gradient(*plain)) << rows << " rows";
    }
  }
}

// The weight as it is on disk was written over: only the copy knows what it was.
TEST(PackedWeightTest, ProductsReadTheCopy) {
  const NoGrad no_grad;
  const auto linear = MakeLinear(LinearLayout::kOutIn);
  PackWeights(*linear);
  const std::vector<float> before = linear->Forward(Rows(5)).ToVector<float>();
  Fill(linear->FindParameter("weight")->tensor, 0);
  EXPECT_EQ(linear->Forward(Rows(5)).ToVector<float>(), before);
}

TEST(PackedWeightTest, AutocastTakesTheWeightItself) {
  const NoGrad no_grad;
  const auto plain = MakeLinear(LinearLayout::kOutIn);
  const auto packed = MakeLinear(LinearLayout::kOutIn);
  PackWeights(*packed);
  const AutocastScope half(DType::kBFloat16);
  const Tensor y = packed->Forward(Rows(7));
  EXPECT_EQ(y.dtype(), DType::kBFloat16);
  EXPECT_EQ(y.ToVector<float>(), plain->Forward(Rows(7)).ToVector<float>());
}

TEST(PackedWeightTest, OtherDtypesAndHeadsStayAsTheyAre) {
  const auto half = MakeLinear(LinearLayout::kOutIn, DType::kBFloat16);
  PackWeights(*half);
  EXPECT_TRUE(IsDense(*half->FindParameter("weight")));
  VocabParallelHead head({.rows = 50, .width = kIn}, Scope::Root({}));
  PackWeights(head);
  EXPECT_TRUE(IsDense(*head.Parameters()[0]));
}

}  // namespace
}  // namespace tessera::nn
