// SPDX-License-Identifier: Apache-2.0
#include "ops/cast/autocast.h"

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "autograd/recompute.h"
#include "ops/attention/attention.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/matmul.h"
#include "ops/norm/norm.h"
#include "ops/reduction/sum.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

Tensor Random(const Shape& shape, uint64_t seed) {
  return CastCopy(RandomTensor(shape, seed), DType::kFloat32);
}

void ExpectEqual(const Tensor& actual, const Tensor& expected) {
  ASSERT_EQ(actual.dtype(), expected.dtype());
  EXPECT_EQ(actual.ToVector<float>(), expected.ToVector<float>());
}

TEST(AutocastTest, OperationsTakeTheDTypesTheyAreListedWith) {
  const Tensor x = Random({3, 8}, 1);
  const Tensor w = Random({8, 8}, 2);
  const Tensor ones = Full({8}, 1.0, DType::kFloat32);
  const Tensor heads = Random({1, 2, 5, 4}, 3);
  for (const DType half : {DType::kBFloat16, DType::kFloat16}) {
    const AutocastScope autocast(half);
    EXPECT_EQ(AutocastDType(), half);
    const Tensor y = Linear(x, w, ones, LinearLayout::kInOut);
    EXPECT_EQ(y.dtype(), half);
    EXPECT_EQ(Matmul(x, w).dtype(), half);
    EXPECT_EQ(Attention(heads, heads, heads, {}).output.dtype(), half);
    EXPECT_EQ(Add(x, y).dtype(), DType::kFloat32);
    EXPECT_EQ(Cat({x, y}, 0).dtype(), DType::kFloat32);
    EXPECT_EQ(Cat({y, y}, 0).dtype(), half);
    EXPECT_EQ(LayerNorm(y, ones, ones, 1e-5).dtype(), DType::kFloat32);
    EXPECT_EQ(LayerNormResidual(y, x, ones, ones, 1e-5).sum.dtype(), DType::kFloat32);
    EXPECT_EQ(CrossEntropy(y, Zeros({3}, DType::kInt64)).dtype(), DType::kFloat32);
    const Tensor wide = CastCopy(x, DType::kFloat64);
    EXPECT_EQ(Matmul(wide, CastCopy(w, DType::kFloat64)).dtype(), DType::kFloat64);
    {
      const AutocastScope off(DType::kFloat32);
      EXPECT_EQ(Matmul(x, w).dtype(), DType::kFloat32);
    }
    EXPECT_EQ(AutocastDType(), half);
  }
  EXPECT_EQ(AutocastDType(), DType::kFloat32);
  EXPECT_EQ(Linear(x, w, ones, LinearLayout::kInOut).dtype(), DType::kFloat32);
  EXPECT_THROW(AutocastScope(DType::kInt64), Error);
  EXPECT_EQ(AutocastDType(), DType::kFloat32);
}

// A product under autocast is that of operands which were cast by hand; the gradient of a float32
// weight is the float32 product of half-precision operands, rounded nowhere.
TEST(AutocastTest, LinearIsThatOfCastOperandsAndItsWeightGradientIsFloat32) {
  for (const DType half : {DType::kBFloat16, DType::kFloat16}) {
    for (const LinearLayout layout : {LinearLayout::kInOut, LinearLayout::kOutIn}) {
      const Tensor x = RequireGrad(Random({5, 12}, 1));
      const Shape shape = layout == LinearLayout::kInOut ? Shape{12, 7} : Shape{7, 12};
      const Tensor w = RequireGrad(Random(shape, 2));
      const Tensor b = RequireGrad(Random({7}, 3));
      const Tensor dy = CastCopy(Random({5, 7}, 4), half);
      Tensor y;
      {
        const AutocastScope autocast(half);
        y = Linear(x, w, b, layout);
      }
      Backward({y}, {dy});

      const Tensor low_x = CastCopy(x.Detach(), half);
      const Tensor low_w = CastCopy(w.Detach(), half);
      ExpectEqual(y.Detach(), Linear(low_x, low_w, CastCopy(b.Detach(), half), layout));
      const Tensor in_out = layout == LinearLayout::kInOut ? low_w : Transpose(low_w, 0, 1);
      ExpectEqual(Grad(x), CastCopy(Matmul(dy, Transpose(in_out, 0, 1)), DType::kFloat32));
      // Halves multiply exactly in float32.
      const Tensor wide_x = CastCopy(low_x, DType::kFloat32);
      const Tensor wide_dy = CastCopy(dy, DType::kFloat32);
      const Tensor dw = Matmul(Transpose(wide_x, 0, 1), wide_dy);
      ASSERT_EQ(Grad(w).dtype(), DType::kFloat32);
      const std::vector<float> actual = Grad(w).ToVector<float>();
      const std::vector<float> expected =
          (layout == LinearLayout::kInOut ? dw : Transpose(dw, 0, 1).ContiguousCopy())
              .ToVector<float>();
      for (size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-5);
      EXPECT_EQ(Grad(b).dtype(), DType::kFloat32);
    }
  }
}

TEST(AutocastTest, RecomputationRepeatsTheScope) {
  const auto block = [](const Tensor& in, const Tensor& weight) {
    return Add(in, Tanh(Matmul(Tanh(Matmul(in, weight)), weight)));
  };
  std::vector<std::vector<float>> grads;
  for (const bool recompute : {false, true}) {
    const Tensor a = RequireGrad(Random({4, 8}, 1));
    const Tensor leaf = RequireGrad(Random({8, 8}, 2));
    Tensor y;
    {
      const AutocastScope autocast(DType::kBFloat16);
      y = recompute ? Recompute([&](const std::vector<Tensor>& in) { return block(in[0], in[1]); },
                                {a, leaf})
                    : block(a, leaf);
    }
    Backward(Sum(y));
    grads.push_back(Grad(a).ToVector<float>());
    grads.push_back(Grad(leaf).ToVector<float>());
  }
  EXPECT_EQ(grads[0], grads[2]);
  EXPECT_EQ(grads[1], grads[3]);
}

}  // namespace
}  // namespace tessera
