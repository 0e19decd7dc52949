// SPDX-License-Identifier: Apache-2.0
#include "ops/loss/loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "autograd/autocast.h"
#include "autograd/autograd.h"
#include "core/thread_pool.h"
#include "ops/elementwise/elementwise.h"
#include "ops/softmax/softmax.h"
#include "ops/testing/op_check.h"

namespace tessera {
namespace {

using Of = std::function<double(double x, double t)>;

// The losses of pairs, reduced, in plain loops.
OpFn Reference(const Of& of, LossReduction reduction, double divisor) {
  return [=](const Tensors& in) {
    Tensor each = EmptyLike(in[0]);
    double sum = 0;
    for (int64_t i = 0; i < each.numel(); ++i) {
      each.data<double>()[i] = of(in[0].data<double>()[i], in[1].data<double>()[i]);
      sum += each.data<double>()[i];
    }
    if (reduction == LossReduction::kNone) return Tensors{each};
    return Tensors{Tensor::Scalar(sum / divisor, DType::kFloat64)};
  };
}

// In (0, 1), with zeros where asked for.
Tensor Probabilities(const Shape& shape, uint64_t seed) {
  return Sigmoid(RandomTensor(shape, seed));
}

struct LossCase {
  const char* name;
  std::function<Tensor(const Tensor&, const Tensor&, LossReduction)> loss;
  Of reference;
  bool probabilities = false;  // of the target
};

double HuberOf(double d, double delta) {
  return d <= delta ? 0.5 * d * d : delta * (d - 0.5 * delta);
}

TEST(LossTest, PairsByEveryReduction) {
  static_assert(static_cast<int>(DivergenceReduction::kMean) ==
                static_cast<int>(LossReduction::kMean));
  // SmoothL1's beta and Huber's delta lie so that differences of normal numbers are on both sides.
  const auto cases = std::vector<LossCase>{
      {"mse", [](auto& x, auto& t, auto r) { return MseLoss(x, t, {r}); },
       [](double x, double t) { return (x - t) * (x - t); }},
      {"l1", [](auto& x, auto& t, auto r) { return L1Loss(x, t, {r}); },
       [](double x, double t) { return std::abs(x - t); }},
      {"smooth l1",
       [](auto& x, auto& t, auto r) {
         return SmoothL1Loss(x, t, {r, 0.7});
       },
       [](double x, double t) { return HuberOf(std::abs(x - t), 0.7) / 0.7; }},
      {"smooth l1 without beta",
       [](auto& x, auto& t, auto r) {
         return SmoothL1Loss(x, t, {r, 0});
       },
       [](double x, double t) { return std::abs(x - t); }},
      {"huber",
       [](auto& x, auto& t, auto r) {
         return HuberLoss(x, t, {r, 1.3});
       },
       [](double x, double t) { return HuberOf(std::abs(x - t), 1.3); }},
      {"bce", [](auto& x, auto& t, auto r) { return BceWithLogits(x, t, {.reduction = r}); },
       [](double x, double t) {
         return -(t * std::log(1 / (1 + std::exp(-x))) + (1 - t) * std::log(1 / (1 + std::exp(x))));
       },
       true},
      {"kl",
       [](auto& x, auto& t, auto r) {
         return KlDivergence(x, t, {.reduction = static_cast<DivergenceReduction>(r)});
       },
       [](double x, double t) { return t * (std::log(t) - x); }, true},
      {"kl of logarithms",
       [](auto& x, auto& t, auto r) {
         return KlDivergence(
             x, t, {.reduction = static_cast<DivergenceReduction>(r), .log_target = true});
       },
       [](double x, double t) { return std::exp(t) * (t - x); }},
  };

  for (size_t i = 0; i < cases.size(); ++i) {
    const LossCase& c = cases[i];
    for (const Shape& shape : {Shape{7}, Shape{3, 37}, Shape{2, 3, 5}, Shape{}}) {
      for (const LossReduction reduction :
           {LossReduction::kNone, LossReduction::kSum, LossReduction::kMean}) {
        const auto count = static_cast<double>(shape.numel());
        const Tensor target = c.probabilities ? Probabilities(shape, 2) : RandomTensor(shape, 2);
        CheckOp(
            {.name = Concat(c.name, " ", shape),
             .op =
                 [&](const Tensors& in) { return Tensors{cases[i].loss(in[0], in[1], reduction)}; },
             .reference =
                 Reference(c.reference, reduction, reduction == LossReduction::kMean ? count : 1),
             .inputs = {RandomTensor(shape, 1), target},
             .sum_length = count,
             .scale_floor = 4});
      }
    }
  }
}

TEST(LossTest, BceWithWeights) {
  for (const bool with_weight : {false, true}) {
    const Tensor pos = Probabilities({5}, 3);
    const Tensor weight = with_weight ? Probabilities({4, 1}, 4) : Tensor();
    const auto of = [&](const Tensors& in) {
      double sum = 0;
      for (int64_t i = 0; i < 20; ++i) {
        const double x = in[0].data<double>()[i];
        const double t = in[1].data<double>()[i];
        const double p = pos.data<double>()[i % 5];
        const double w = with_weight ? weight.data<double>()[i / 5] : 1;
        sum += w * (p * t * std::log1p(std::exp(-x)) + (1 - t) * std::log1p(std::exp(x)));
      }
      return Tensors{Tensor::Scalar(sum / 20, DType::kFloat64)};
    };
    CheckOp({.name = "bce with weights",
             .op =
                 [&](const Tensors& in) {
                   const Device device = in[0].device();
                   return Tensors{
                       BceWithLogits(in[0], in[1],
                                     {.weight = with_weight ? CopyTo(weight, device) : weight,
                                      .pos_weight = CopyTo(pos, device)})};
                 },
             .reference = of,
             .inputs = {RandomTensor({4, 5}, 1), Probabilities({4, 5}, 2)},
             .sum_length = 20});
    CheckOp({.name = "bce with a weight alone",
             .op =
                 [&](const Tensors& in) {
                   return Tensors{
                       BceWithLogits(in[0], in[1], {.weight = CopyTo(pos, in[0].device())})};
                 },
             .reference = nullptr,
             .inputs = {RandomTensor({4, 5}, 1), Probabilities({4, 5}, 2)},
             .sum_length = 20});
  }
}

// Large logits neither overflow nor lose the small side.
TEST(LossTest, BceOfLargeLogits) {
  const Tensor x = Tensor::FromVector<float>({1000, -1000, 1000, -1000}, {4});
  const Tensor t = Tensor::FromVector<float>({1, 0, 0, 1}, {4});
  for (const Device& device : TestDevices()) {
    const Tensor losses =
        BceWithLogits(CopyTo(x, device), CopyTo(t, device), {.reduction = LossReduction::kNone});
    EXPECT_EQ(losses.ToVector<float>(), (std::vector<float>{0, 0, 1000, 1000}));
  }
}

TEST(LossTest, DivergenceOfNothingAndOfBatches) {
  const Tensor x = Tensor::FromVector<float>({-1, -HUGE_VALF, -0.5f, -2}, {2, 2});
  const Tensor t = Tensor::FromVector<float>({1, 0, 0.5f, 0.5f}, {2, 2});
  for (const Device& device : TestDevices()) {
    const double sum = 1.0 + 0.5 * (std::log(0.5) + 0.5) + 0.5 * (std::log(0.5) + 2);
    EXPECT_NEAR(KlDivergence(CopyTo(x, device), CopyTo(t, device)).Item(), sum / 2, 1e-6);
  }
  EXPECT_THROW(KlDivergence(Full({}, 1), Full({}, 1)), Error);
}

TEST(LossTest, Nll) {
  const Tensor ids = Tensor::FromVector<int64_t>({3, 0, -100, 4, 3, 1}, {2, 3});
  const Tensor weights = Probabilities({5}, 3);
  for (const bool weighted : {false, true}) {
    for (const LossReduction reduction :
         {LossReduction::kNone, LossReduction::kSum, LossReduction::kMean}) {
      const auto reference = [&](const Tensors& in) {
        Tensor each = Zeros({2, 3}, DType::kFloat64);
        double sum = 0;
        double counted = 0;
        for (int64_t i = 0; i < 6; ++i) {
          const int64_t id = ids.data<int64_t>()[i];
          if (id < 0) continue;
          const double w = weighted ? weights.data<double>()[id] : 1;
          each.data<double>()[i] = -w * in[0].data<double>()[i * 5 + id];
          sum += each.data<double>()[i];
          counted += w;
        }
        if (reduction == LossReduction::kNone) return Tensors{each};
        return Tensors{Tensor::Scalar(reduction == LossReduction::kMean ? sum / counted : sum,
                                      DType::kFloat64)};
      };
      CheckOp({.name = "nll",
               .op =
                   [&](const Tensors& in) {
                     const Device device = in[0].device();
                     return Tensors{
                         NllLoss(in[0], CopyTo(ids, device),
                                 {.reduction = reduction,
                                  .class_weights = weighted ? CopyTo(weights, device) : Tensor()})};
                   },
               .reference = reference,
               .inputs = {LogSoftmax(RandomTensor({2, 3, 5}, 1), -1)},
               .sum_length = 6});
    }
  }
  const Tensor outside = Tensor::FromVector<int64_t>({7}, {1});
  EXPECT_THROW(NllLoss(Full({1, 5}, 0.5), outside), Error);
  EXPECT_THROW(NllLoss(Full({2, 5}, 0.5), outside), Error);
}

Tensor CosineReference(const Tensor& a, const Tensor& b) {
  Tensor y = Empty({a.size(0)}, DType::kFloat64);
  for (int64_t i = 0; i < a.size(0); ++i) {
    double dot = 0, aa = 0, bb = 0;
    for (int64_t j = 0; j < a.size(1); ++j) {
      const double u = a.data<double>()[i * a.size(1) + j];
      const double v = b.data<double>()[i * a.size(1) + j];
      dot += u * v;
      aa += u * u;
      bb += v * v;
    }
    y.data<double>()[i] = dot / std::sqrt(aa * bb);
  }
  return y;
}

TEST(LossTest, Cosines) {
  const Tensors inputs = {RandomTensor({5, 7}, 1), RandomTensor({5, 7}, 2)};
  CheckOp({.name = "cosine similarity",
           .op = [](const Tensors& in) { return Tensors{CosineSimilarity(in[0], in[1])}; },
           .reference = [](const Tensors& in) { return Tensors{CosineReference(in[0], in[1])}; },
           .inputs = inputs,
           .sum_length = 7});
  const Tensor labels = Tensor::FromVector<int64_t>({1, -1, -1, 1, -1}, {5});
  CheckOp({.name = "cosine embedding",
           .op =
               [&](const Tensors& in) {
                 return Tensors{CosineEmbeddingLoss(in[0], in[1], CopyTo(labels, in[0].device()),
                                                    {.margin = -0.9})};
               },
           .reference =
               [&](const Tensors& in) {
                 const Tensor cos = CosineReference(in[0], in[1]);
                 double sum = 0;
                 for (int64_t i = 0; i < 5; ++i) {
                   const double c = cos.data<double>()[i];
                   sum += labels.data<int64_t>()[i] > 0 ? 1 - c : std::max(0.0, c + 0.9);
                 }
                 return Tensors{Tensor::Scalar(sum / 5, DType::kFloat64)};
               },
           .inputs = inputs,
           .sum_length = 7});
}

// A vector of zeros is like nothing, and gets a gradient that is a number.
TEST(LossTest, CosineOfZeros) {
  const Tensor a = RequireGrad(Zeros({1, 3}));
  const Tensor b = Full({1, 3}, 1.0);
  const Tensor y = CosineSimilarity(a, b);
  EXPECT_EQ(y.Item(), 0);
  Backward(y);
  for (const double g : Grad(a).ToVector<double>()) EXPECT_TRUE(std::isfinite(g));
}

TEST(LossTest, DTypesOfLosses) {
  const Tensor half = Full({3}, 0.5, DType::kBFloat16);
  const Tensor single = Full({3}, 1.0);
  EXPECT_EQ(MseLoss(half, half).dtype(), DType::kFloat32);
  EXPECT_EQ(MseLoss(half, single).Item(), 0.25);
  EXPECT_EQ(MseLoss(half, Full({3}, 1.0, DType::kFloat64)).dtype(), DType::kFloat64);
  EXPECT_EQ(CosineSimilarity(half, half).dtype(), DType::kBFloat16);
  const AutocastScope autocast(DType::kBFloat16);
  const Tensor leaf = RequireGrad(half.Detach());
  Backward(L1Loss(leaf, single));
  EXPECT_EQ(CosineSimilarity(half, half).dtype(), DType::kFloat32);
  EXPECT_NEAR(Grad(leaf).ToVector<double>()[0], -1.0 / 3, 2e-3);
}

TEST(LossTest, Refusals) {
  const Tensor x = Full({3, 1}, 1.0);
  EXPECT_THROW(MseLoss(x, Full({3}, 1.0)), Error);
  EXPECT_THROW(L1Loss(x, Full({3, 1}, 1, DType::kInt64)), Error);
  EXPECT_THROW(SmoothL1Loss(x, x, {.beta = -1}), Error);
  EXPECT_THROW(HuberLoss(x, x, {.delta = 0}), Error);
  EXPECT_THROW(BceWithLogits(x, x, {.pos_weight = Full({3, 3}, 1.0)}), Error);
  EXPECT_THROW(CosineEmbeddingLoss(x, x, Full({3, 1}, 1.0)), Error);
  for (const double label : {0.0, 2.0, -0.5, std::nan("")}) {
    EXPECT_THROW(CosineEmbeddingLoss(x, x, Full({3}, label)), Error) << label;
  }
  EXPECT_TRUE(std::isnan(MseLoss(Zeros({0}), Zeros({0})).Item()));
}

TEST(LossTest, BitsDoNotDependOnTheNumberOfThreads) {
  const Tensor x = CastCopy(RandomTensor({70, 1003}, 6), DType::kFloat32);
  const Tensor t = CastCopy(RandomTensor({70, 1003}, 7), DType::kFloat32);
  SetNumThreads(1);
  const double one = MseLoss(x, t).Item();
  SetNumThreads(3);
  EXPECT_EQ(MseLoss(x, t).Item(), one);
  SetNumThreads(AvailableCores());
}

}  // namespace
}  // namespace tessera
