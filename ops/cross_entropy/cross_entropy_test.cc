// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "autograd/autograd.h"
#include "core/placement.h"
#include "core/thread_communicator.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

// By the definition of PyTorch's cross_entropy, in plain loops.
OpFn Naive(CrossEntropyOptions options) {
  return [options](const Tensors& in) {
    const int64_t v = in[0].size(-1);
    const int64_t rows = in[1].numel();
    Tensor losses = Zeros({rows}, DType::kFloat64);
    double total = 0;
    double divisor = 0;
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t target = in[1].data<int64_t>()[i];
      if (target == options.ignore_index) continue;
      const double* x = in[0].data<double>() + i * v;
      double z = 0;
      for (int64_t c = 0; c < v; ++c) z += std::exp(x[c]);
      const auto weight = [&](int64_t c) {
        return options.class_weights.defined() ? options.class_weights.data<float>()[c] : 1.0;
      };
      double loss = -(1 - options.label_smoothing) * weight(target) * (x[target] - std::log(z));
      for (int64_t c = 0; c < v; ++c) {
        loss -= options.label_smoothing / static_cast<double>(v) * weight(c) * (x[c] - std::log(z));
      }
      losses.data<double>()[i] = loss;
      total += loss;
      divisor += weight(target);
    }
    if (options.reduction == LossReduction::kNone) return Tensors{Reshape(losses, in[1].shape())};
    if (options.reduction == LossReduction::kMean) total /= divisor;
    return Tensors{Full({}, total, DType::kFloat64)};
  };
}

void Check(const std::string& name, const Shape& shape, const CrossEntropyOptions& options) {
  Tensor targets = RandomIndices(Shape(shape.begin(), shape.end() - 1), shape[-1], 5);
  if (targets.numel() > 2) targets.data<int64_t>()[1] = options.ignore_index;
  CheckOp({.name = name,
           .op = [=](const Tensors& in) { return Tensors{CrossEntropy(in[0], in[1], options)}; },
           .reference = Naive(options),
           .inputs = {RandomTensor(shape, 1, 3.0), targets},
           .sum_length = static_cast<double>(shape[-1]),
           .scale_floor = 6});  // a loss is a difference of logits of this size
}

// Rows that lie apart are read, and their gradient written, where they are.
TEST(CrossEntropyTest, RowsThatLieApart) {
  for (const int64_t begin : {0, 8}) {
    const Tensor targets = RandomIndices({6}, 37, 5);
    CheckOp({.name = Concat("columns from ", begin, " on"),
             .op =
                 [=](const Tensors& in) {
                   return Tensors{CrossEntropy(Slice(in[0], 1, begin, 37), in[1])};
                 },
             .reference =
                 [=](const Tensors& in) {
                   return Naive({})({Slice(in[0], 1, begin, 37).ContiguousCopy(), in[1]});
                 },
             .inputs = {RandomTensor({6, 48}, 1, 3.0), targets},
             .sum_length = 37,
             .scale_floor = 6});
  }
}

TEST(CrossEntropyTest, ReductionsSmoothingAndWeights) {
  Check("mean", {6, 37}, {});
  Check("sum", {2, 3, 5}, {.reduction = LossReduction::kSum});
  Check("none", {7, 19}, {.reduction = LossReduction::kNone, .ignore_index = 3});
  Check("smoothing", {6, 37}, {.label_smoothing = 0.1});
  const Tensor weights = Tensor::FromVector<float>({0.5f, 2.0f, 1.0f, 0.0f, 3.0f}, {5});
  Check("weights", {9, 5}, {.class_weights = weights});
  Check("weights and smoothing", {9, 5}, {.label_smoothing = 0.2, .class_weights = weights});
  Check("one row", {1, 2}, {});
}

// The losses of rows, and the gradient of their sum.
Tensors LossesAndGradient(const Tensor& logits, const Tensor& targets,
                          CrossEntropyOptions options) {
  options.reduction = LossReduction::kNone;
  const Tensor leaf = RequireGrad(logits.Detach());
  const Tensor losses = CrossEntropy(leaf, targets, options);
  Backward({losses}, {Full(losses.shape(), 1.0, losses.dtype(), losses.device())});
  return {losses.Detach(), Grad(leaf)};
}

// Rows that a block of threads takes several times over, whose ends are parts of groups, beside
// columns that are not in use.
TEST(CrossEntropyTest, LongRows) {
  for (const int64_t vocab : {4095, 9003}) {
    const Tensor targets = RandomIndices({3}, vocab, 5);
    targets.data<int64_t>()[0] = vocab - 1;
    for (const double smoothing : {0.0, 0.2}) {
      const CrossEntropyOptions options = {.label_smoothing = smoothing, .local_vocab = vocab};
      for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16}) {
        const Tensor logits = CastCopy(RandomTensor({3, 9008}, 1, 3.0), dtype);
        const Tensors expected =
            LossesAndGradient(CastCopy(logits, DType::kFloat64), targets, options);
        for (const Device& device : TestDevices()) {
          const Tensors actual =
              LossesAndGradient(CopyTo(logits, device), CopyTo(targets, device), options);
          const std::string what = Concat(vocab, " ", dtype, " ", device, " ", smoothing);
          // Losses are no narrower than float32.
          const double exact = Epsilon(actual[0].dtype());
          ExpectClose(actual[0], expected[0], 64 * exact, what, 1);
          ExpectClose(actual[1], expected[1], 32 * Epsilon(dtype), what + " gradient", 1);
        }
      }
    }
  }
}

TEST(CrossEntropyTest, NanShowsAndMinusInfinityCountsNothing) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr int64_t kVocab = 4500;
  for (const Device& device : TestDevices()) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      // All but the last ruled out; a NaN among numbers, and among what is ruled out; a sum of
      // infinities; nothing left.
      const Tensor logits = Full({5, kVocab}, -kInfinity, DType::kFloat32);
      float* const x = logits.data<float>();
      x[kVocab - 1] = -3;
      std::fill(x + kVocab, x + 2 * kVocab, 1.0f);
      x[kVocab + 2049] = std::numeric_limits<float>::quiet_NaN();
      x[2 * kVocab + 3] = std::numeric_limits<float>::quiet_NaN();
      x[3 * kVocab + 5] = kInfinity;
      const Tensors out =
          LossesAndGradient(CopyTo(CastCopy(logits, dtype), device),
                            CopyTo(Full({5}, kVocab - 1.0, DType::kInt64), device), {});
      const std::vector<float> losses = out[0].ToVector<float>();
      EXPECT_EQ(losses[0], 0.0f) << device;
      for (size_t row = 1; row < losses.size(); ++row) {
        EXPECT_FALSE(std::isfinite(losses[row])) << device << " row " << row;
      }
      EXPECT_TRUE(std::isnan(losses[1]) && std::isnan(losses[2])) << device;
      const std::vector<float> grad = out[1].ToVector<float>();
      EXPECT_EQ(std::vector<float>(grad.begin(), grad.begin() + kVocab),
                std::vector<float>(kVocab, 0.0f))
          << device;
    }
  }
}

TEST(CrossEntropyTest, OverwritesLogitsOnRequest) {
  const Tensor logits = CastCopy(RandomTensor({4, 9}, 2), DType::kFloat32);
  const Tensor targets = RandomIndices({4}, 9, 3);
  const Tensor plain = RequireGrad(CastCopy(logits, DType::kFloat32));
  Backward(CrossEntropy(plain, targets));
  const Tensor consumed = RequireGrad(CastCopy(logits, DType::kFloat32));
  const Tensor loss = CrossEntropy(consumed, targets, {.overwrite_logits = true});
  Backward(loss);
  EXPECT_EQ(Grad(consumed).ToVector<float>(), Grad(plain).ToVector<float>());
  EXPECT_EQ(consumed.ToVector<float>(), Grad(plain).ToVector<float>());
}

TEST(CrossEntropyTest, ShardedVocabularyWithPadding) {
  const Tensor logits = RandomTensor({5, 13}, 4, 2.0);
  const Tensor targets = RandomIndices({5}, 13, 6);
  targets.data<int64_t>()[2] = -100;
  const CrossEntropyOptions whole = {.label_smoothing = 0.1};
  const Tensor leaf = RequireGrad(CastCopy(logits, DType::kFloat64));
  const Tensor expected = CrossEntropy(leaf, targets, whole);
  Backward(expected);
  for (const int ranks : {2, 3}) {
    RunRanks(ranks, [&](std::shared_ptr<Communicator> world) {
      const Share share = EvenShare(13, ranks, world->rank());
      const int64_t padded = (13 + ranks - 1) / ranks;
      const Tensor local = Full({5, padded}, 1e9, DType::kFloat64);  // padding must not count
      CopyInto(Slice(local, 1, 0, share.count), Slice(logits, 1, share.begin, share.count));
      RequireGrad(local);
      CrossEntropyOptions options = whole;
      options.group = world;
      options.vocab_begin = share.begin;
      options.local_vocab = share.count;
      options.global_vocab = 13;
      const Tensor loss = CrossEntropy(local, targets, options);
      Backward(loss);
      ExpectClose(loss, expected.Detach(), 1e-14, "loss");
      const Tensor grad = Grad(local);
      ExpectClose(Slice(grad, 1, 0, share.count), Slice(Grad(leaf), 1, share.begin, share.count),
                  1e-14, "gradient");
      if (padded > share.count) {
        EXPECT_EQ(Slice(grad, 1, share.count, 1).ToVector<double>(), std::vector<double>(5, 0.0));
      }
    });
  }
}

// Sums over the vocabulary in a tree: the same bits whoever has which classes.
TEST(CrossEntropyTest, TreesOverTheVocabularyDoNotDependOnRanks) {
  for (const int64_t classes : {101, 5}) {
    const Tensor logits = CastCopy(RandomTensor({7, classes}, 4, 3.0), DType::kFloat32);
    const Tensor targets = RandomIndices({7}, classes, 6);
    targets.data<int64_t>()[2] = -100;
    for (const double smoothing : {0.0, 0.1}) {
      const CrossEntropyOptions plain = {.reduction = LossReduction::kNone,
                                         .label_smoothing = smoothing};
      const auto step = [&](const Tensor& own, const CrossEntropyOptions& options) {
        const Tensor leaf = RequireGrad(CastCopy(own, DType::kFloat32));
        const Tensor losses = CrossEntropy(leaf, targets, options);
        Backward({losses}, {Full({7}, 0.5)});
        return std::pair(losses.Detach(), Grad(leaf));
      };
      CrossEntropyOptions tree = plain;
      tree.tree = MakeSumTree({{.units = classes}}, nullptr);
      const auto [losses, gradient] = step(logits, tree);
      const auto [about, about_gradient] = step(logits, plain);
      ExpectClose(losses, about, 1e-6, "losses");
      ExpectClose(gradient, about_gradient, 1e-6, "gradient");
      for (const int ranks : {2, 4, 8}) {
        RunRanks(ranks, [&, losses = losses,
                         gradient = gradient](std::shared_ptr<Communicator> world) {
          const Share share = EvenShare(classes, ranks, world->rank());
          CrossEntropyOptions options = plain;
          options.group = world;
          options.vocab_begin = share.begin;
          options.local_vocab = share.count;
          options.global_vocab = classes;
          options.tree = MakeSumTree({{.units = share.count}}, world);
          const auto part = [&](const Tensor& t) { return Slice(t, 1, share.begin, share.count); };
          const auto [own, own_gradient] = step(part(logits), options);
          EXPECT_EQ(own.ToVector<float>(), losses.ToVector<float>()) << ranks;
          EXPECT_EQ(own_gradient.ToVector<float>(),
                    part(gradient).ContiguousCopy().ToVector<float>())
              << ranks;
        });
      }
      tree.tree = MakeSumTree({{.units = classes + 1}}, nullptr);
      EXPECT_THROW(CrossEntropy(logits, targets, tree), Error);
    }
  }
}

// A class that is ruled out is as if it were not there.
TEST(CrossEntropyTest, ClassesOfMinusInfinityCountNothing) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  const Tensor logits = RequireGrad(Tensor::FromVector<float>({1, kNever, 2}, {1, 3}));
  const Tensor fewer = RequireGrad(Tensor::FromVector<float>({1, 2}, {1, 2}));
  const Tensor loss = CrossEntropy(logits, Tensor::FromVector<int64_t>({2}, {1}));
  const Tensor expected = CrossEntropy(fewer, Tensor::FromVector<int64_t>({1}, {1}));
  EXPECT_FLOAT_EQ(static_cast<float>(loss.Item()), static_cast<float>(expected.Item()));
  Backward(loss);
  Backward(expected);
  const std::vector<float> want = Grad(fewer).ToVector<float>();
  const std::vector<float> got = Grad(logits).ToVector<float>();
  EXPECT_FLOAT_EQ(got[0], want[0]);
  EXPECT_EQ(got[1], 0.0f);
  EXPECT_FLOAT_EQ(got[2], want[1]);
}

TEST(CrossEntropyTest, LargeLogitsAndIgnoredRows) {
  const Tensor logits = RequireGrad(Tensor::FromVector<float>({1e4f, -1e4f, 3e4f, 3e4f}, {2, 2}));
  const Tensor targets = Tensor::FromVector<int64_t>({0, -100}, {2});
  const Tensor loss = CrossEntropy(logits, targets);
  EXPECT_EQ(loss.Item(), 0.0);
  Backward(loss);
  EXPECT_EQ(Grad(logits).ToVector<float>(), (std::vector<float>{0, 0, 0, 0}));
}

// As PyTorch has it: the mean of nothing is NaN, and its gradient 0.
TEST(CrossEntropyTest, WhereNoRowCountsTheGradientIsZero) {
  const Tensor targets = Tensor::FromVector<int64_t>({-100, -100}, {2});
  for (const double smoothing : {0.0, 0.1}) {
    const Tensor logits = RequireGrad(Tensor::FromVector<float>({1, -2, 3, 0, 5, 1}, {2, 3}));
    const Tensor loss = CrossEntropy(logits, targets, {.label_smoothing = smoothing});
    EXPECT_TRUE(std::isnan(loss.Item()));
    Backward(loss);
    EXPECT_EQ(Grad(logits).ToVector<float>(), std::vector<float>(6, 0.0f));
  }
  // So it is of every shard of a vocabulary.
  RunRanks(2, [&](std::shared_ptr<Communicator> world) {
    const Tensor logits = RequireGrad(Full({2, 3}, 1.0 + world->rank()));
    const Tensor loss = CrossEntropy(
        logits, targets, {.group = world, .vocab_begin = 3 * world->rank(), .global_vocab = 6});
    EXPECT_TRUE(std::isnan(loss.Item()));
    Backward(loss);
    EXPECT_EQ(Grad(logits).ToVector<float>(), std::vector<float>(6, 0.0f));
  });
}

// The sum of the weights is 1 in float32.
TEST(CrossEntropyTest, WeightsAreSummedInTheDTypeOfTheLoss) {
  const float small = std::ldexp(1.0f, -25);
  const Tensor losses =
      CrossEntropy(Zeros({1, 3}, DType::kFloat64), Tensor::FromVector<int64_t>({0}, {1}),
                   {.reduction = LossReduction::kNone,
                    .label_smoothing = 1,
                    .class_weights = Tensor::FromVector<float>({1, small, small}, {3})});
  EXPECT_NEAR(losses.Item(), (1 + std::ldexp(1.0, -24)) / 3 * std::log(3.0), 1e-12);
}

TEST(CrossEntropyTest, RefusesWrongArguments) {
  const Tensor targets = Tensor::FromVector<int64_t>({0, 5}, {2});
  for (const double smoothing : {-0.5, 1.5, std::nan("")}) {
    EXPECT_THROW(CrossEntropy(Zeros({2, 9}), targets, {.label_smoothing = smoothing}), Error);
  }
  EXPECT_NO_THROW(CrossEntropy(Zeros({2, 9}), targets, {.label_smoothing = 1}));
  EXPECT_THROW(CrossEntropy(Zeros({2, 5}), targets), Error);
  EXPECT_THROW(CrossEntropy(Zeros({3, 9}), targets), Error);
  EXPECT_THROW(CrossEntropy(Zeros({2, 9}), Zeros({2})), Error);
  EXPECT_THROW(CrossEntropy(Zeros({2, 9}), targets, {.class_weights = Zeros({8})}), Error);
}

}  // namespace
}  // namespace tessera
