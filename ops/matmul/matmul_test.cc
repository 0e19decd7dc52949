#include "ops/matmul/matmul.h"

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

// Naive product of a [A.., M, K] and b [B.., K, N] with batches of equal size or one.
Tensors NaiveMatmul(const Tensors& in) {
  const Tensor& a = in[0];
  const Tensor& b = in[1];
  const int64_t m = a.size(-2);
  const int64_t k = a.size(-1);
  const int64_t n = b.size(-1);
  Shape batch = BroadcastShapes(Shape(a.shape().begin(), a.shape().end() - 2),
                                Shape(b.shape().begin(), b.shape().end() - 2), "test");
  const int64_t batches = batch.numel();
  Shape shape = batch;
  shape.push_back(m);
  shape.push_back(n);
  Tensor c = Zeros(shape, DType::kFloat64);
  const int64_t a_batches = a.numel() / std::max<int64_t>(m * k, 1);
  const int64_t b_batches = b.numel() / std::max<int64_t>(k * n, 1);
  for (int64_t i = 0; i < batches; ++i) {
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t s = 0; s < n; ++s) {
        for (int64_t j = 0; j < k; ++j) {
          c.data<double>()[(i * m + r) * n + s] +=
              a.data<double>()[(i % a_batches * m + r) * k + j] *
              b.data<double>()[(i % b_batches * k + j) * n + s];
        }
      }
    }
  }
  return {c};
}

TEST(MatmulTest, BatchesAndBroadcasts) {
  const std::pair<Shape, Shape> shapes[] = {{{3, 5}, {5, 4}},          {{1, 1}, {1, 1}},
                                            {{2, 3, 7}, {2, 7, 5}},    {{2, 3, 4, 5}, {2, 3, 5, 2}},
                                            {{2, 3, 7}, {7, 5}},       {{4, 7}, {3, 7, 5}},
                                            {{2, 0, 3}, {2, 3, 4}},    {{2, 3, 0}, {2, 0, 4}},
                                            {{3, 37, 19}, {3, 19, 33}}};
  for (const auto& [sa, sb] : shapes) {
    CheckOp({.name = Concat("matmul ", sa, sb),
             .op = [](const Tensors& in) { return Tensors{Matmul(in[0], in[1])}; },
             .reference = NaiveMatmul,
             .inputs = {RandomTensor(sa, 1), RandomTensor(sb, 2)},
             .sum_length = 40});
  }
}

TEST(MatmulTest, TransposedOperands) {
  CheckOp({.name = "matmul of transposes",
           .op =
               [](const Tensors& in) {
                 return Tensors{Matmul(Transpose(in[0], -1, -2), Transpose(in[1], 0, 1))};
               },
           .reference =
               [](const Tensors& in) {
                 return NaiveMatmul({Transpose(in[0], -1, -2).ContiguousCopy(),
                                     Transpose(in[1], 0, 1).ContiguousCopy()});
               },
           .inputs = {RandomTensor({7, 3}, 1), RandomTensor({5, 7}, 2)},
           .sum_length = 7});
}

TEST(MatmulTest, LinearInBothLayouts) {
  for (const LinearLayout layout : {LinearLayout::kOutIn, LinearLayout::kInOut}) {
    for (const bool has_bias : {true, false}) {
      const bool out_in = layout == LinearLayout::kOutIn;
      CheckOp({.name = Concat("linear ", out_in ? "out_in" : "in_out", has_bias ? " bias" : ""),
               .op =
                   [=](const Tensors& in) {
                     const Tensor bias = has_bias ? Contiguous(in[2]) : Tensor();
                     return Tensors{Linear(in[0], in[1], bias, layout)};
                   },
               .reference =
                   [=](const Tensors& in) {
                     const Tensor w = out_in ? Transpose(in[1], 0, 1).ContiguousCopy() : in[1];
                     Tensors y = NaiveMatmul({in[0], w});
                     for (int64_t i = 0; has_bias && i < y[0].numel(); ++i) {
                       y[0].data<double>()[i] += in[2].data<double>()[i % 4];
                     }
                     return y;
                   },
               .inputs = {RandomTensor({2, 3, 7}, 1),
                          RandomTensor(out_in ? Shape{4, 7} : Shape{7, 4}, 2),
                          has_bias ? RandomTensor({4}, 3) : Tensor()},
               .sum_length = 10});
    }
  }
}

TEST(MatmulTest, LinearWithoutInputsOrOutputs) {
  const Tensor bias = RequireGrad(Full({4}, 2.0));
  const Tensor y = Linear(Zeros({2, 3, 0}), Zeros({4, 0}), bias, LinearLayout::kOutIn);
  EXPECT_EQ(y.ToVector<float>(), std::vector<float>(24, 2.0f));
  Backward({y}, {Full({2, 3, 4}, 1.0)});
  EXPECT_EQ(Grad(bias).ToVector<float>()[3], 6.0f);
  const Tensor x = RequireGrad(Full({2, 3, 5}, 1.0));
  const Tensor none = Linear(x, Zeros({5, 0}), Tensor(), LinearLayout::kInOut);
  EXPECT_EQ(none.shape(), (Shape{2, 3, 0}));
  Backward({none}, {Zeros({2, 3, 0})});
  EXPECT_EQ(Grad(x).ToVector<float>(), std::vector<float>(30, 0.0f));
}

TEST(MatmulTest, LinearQueuesWeightGradients) {
  const Tensor x = RequireGrad(Full({2, 3}, 1.0));
  const Tensor w = RequireGrad(Full({4, 3}, 2.0));
  const Tensor b = RequireGrad(Zeros({4}));
  WeightGradQueue queue;
  const Tensor y = Linear(x, w, b, LinearLayout::kOutIn);
  Backward({y}, {Full({2, 4}, 1.0)}, {.weight_queue = &queue});
  EXPECT_EQ(Grad(x).ToVector<float>()[0], 8.0f);
  EXPECT_FALSE(Grad(w).defined());
  queue.Run();
  EXPECT_EQ(Grad(w).ToVector<float>()[0], 2.0f);
  EXPECT_EQ(Grad(b).ToVector<float>()[0], 2.0f);
}

TEST(MatmulTest, HalfWeightGradientsAreNotRoundedToHalf) {
  // 1 + 2^-9 is not a bfloat16; summed over two rows in float32 it must stay.
  const Tensor x = Tensor::FromVector<float>({1.0f, 0.001953125f}, {2, 1});
  const Tensor w = RequireGrad(Full({1, 1}, 1.0, DType::kBFloat16));
  const Tensor y = Linear(CastCopy(x, DType::kBFloat16), w, Tensor(), LinearLayout::kOutIn);
  Backward({y}, {Full({2, 1}, 1.0)});
  EXPECT_EQ(Grad(w).Item(), 1.001953125);
}

TEST(MatmulTest, RefusesWrongShapes) {
  EXPECT_THROW(Matmul(Zeros({2, 3}), Zeros({2, 3})), Error);
  EXPECT_THROW(Matmul(Zeros({3}), Zeros({3, 2})), Error);
  EXPECT_THROW(Matmul(Zeros({2, 2, 3}), Zeros({3, 3, 2})), Error);
  EXPECT_THROW(Matmul(Zeros({2, 3}), Zeros({3, 2}, DType::kFloat64)), Error);
  EXPECT_THROW(Linear(Zeros({2, 3}), Zeros({4, 2}), Tensor(), LinearLayout::kOutIn), Error);
  EXPECT_THROW(Linear(Zeros({2, 3}), Zeros({4, 3}), Zeros({3}), LinearLayout::kOutIn), Error);
}

}  // namespace
}  // namespace tessera
