// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy/linear_cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "autograd/autograd.h"
#include "autograd/recompute.h"
#include "core/allocator.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/matmul.h"
#include "ops/testing/op_check.h"

namespace tessera {
namespace {

Tensor Composed(const Tensor& h, const Tensor& weight, const Tensor& targets,
                const CrossEntropyOptions& options) {
  return CrossEntropy(Linear(h, weight, Tensor(), LinearLayout::kOutIn), targets, options);
}

TEST(LinearCrossEntropyTest, IsTheLossOfTheWholeLogits) {
  const std::vector<std::pair<std::string, CrossEntropyOptions>> cases = {
      {"mean", {}},
      {"sum", {.reduction = LossReduction::kSum}},
      {"smoothing", {.label_smoothing = 0.1}},
      {"ignored", {.ignore_index = 3}}};
  for (const auto& [name, options] : cases) {
    for (const int64_t chunk : {1, 4, 7, 100}) {
      const Tensor targets = RandomIndices({2, 7}, 19, 5);
      targets.data<int64_t>()[1] = options.ignore_index;
      CheckOp({.name = Concat(name, " by ", chunk),
               .op =
                   [=, &options = options](const Tensors& in) {
                     return Tensors{LinearCrossEntropy(in[0], in[1], in[2], options, chunk)};
                   },
               .reference =
                   [&options = options](const Tensors& in) {
                     return Tensors{Composed(in[0], in[1], in[2], options)};
                   },
               .inputs = {RandomTensor({2, 7, 8}, 1), RandomTensor({19, 8}, 2), targets},
               .sum_length = 14 * 19,
               .scale_floor = 6});
    }
  }
}

// On a GPU the rows of such logits lie apart.
TEST(LinearCrossEntropyTest, OddVocabulary) {
  const Tensor targets = RandomIndices({11}, 1031, 5);
  CheckOp(
      {.name = "1031 words",
       .op =
           [](const Tensors& in) {
             return Tensors{LinearCrossEntropy(in[0], in[1], in[2], {}, 4)};
           },
       .reference = [](const Tensors& in) { return Tensors{Composed(in[0], in[1], in[2], {})}; },
       .inputs = {RandomTensor({11, 8}, 1), RandomTensor({1031, 8}, 2), targets},
       .sum_length = 11 * 1031,
       .scale_floor = 6});
}

// Gradients against those of the composed operations, scaled by what comes after the loss, under
// recomputation too; the weight's in the dtype that its leaf collects.
TEST(LinearCrossEntropyTest, GradientsAreThoseOfTheWholeLogits) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const Tensor h = RandomTensor({10, 8}, 1);
    const Tensor w = RandomTensor({19, 8}, 2);
    const Tensor targets = RandomIndices({10}, 19, 3);
    std::vector<std::vector<float>> dh;
    std::vector<std::vector<float>> dw;
    for (const int how : {0, 1, 2}) {
      const Tensor a = RequireGrad(CastCopy(h, dtype), dtype);
      const Tensor b = RequireGrad(CastCopy(w, dtype));
      const auto chunked = [&](const std::vector<Tensor>& in) {
        return LinearCrossEntropy(in[0], in[1], targets, {}, 3);
      };
      const Tensor loss = how == 0   ? Composed(a, b, targets, {})
                          : how == 1 ? chunked({a, b})
                                     : Recompute(chunked, {a, b});
      Backward(Mul(loss, 3.0));
      dh.push_back(Grad(a).ToVector<float>());
      dw.push_back(Grad(b).ToVector<float>());
      EXPECT_EQ(Grad(b).dtype(), DType::kFloat32);
    }
    EXPECT_EQ(dh[1], dh[2]);
    EXPECT_EQ(dw[1], dw[2]);
    const double tolerance = dtype == DType::kFloat32 ? 1e-6 : 0.02;
    for (size_t i = 0; i < dh[0].size(); ++i) EXPECT_NEAR(dh[1][i], dh[0][i], tolerance);
    for (size_t i = 0; i < dw[0].size(); ++i) EXPECT_NEAR(dw[1][i], dw[0][i], tolerance);
  }
}

TEST(LinearCrossEntropyTest, WhereNoRowCountsTheGradientIsZero) {
  const Tensor h = RequireGrad(Full({3, 2}, 0.5));
  const Tensor w = RequireGrad(Full({4, 2}, 0.25));
  const Tensor loss = LinearCrossEntropy(h, w, Full({3}, -100, DType::kInt64), {}, 2);
  EXPECT_NE(loss.Item(), loss.Item());
  Backward(loss);
  EXPECT_EQ(Grad(h).ToVector<float>(), std::vector<float>(6, 0.0f));
  EXPECT_EQ(Grad(w).ToVector<float>(), std::vector<float>(8, 0.0f));
}

// The logits of one chunk, not of all rows.
TEST(LinearCrossEntropyTest, KeepsTheLogitsOfOneChunk) {
  Allocator& allocator = Allocator::For(Device::Cpu());
  const int64_t rows = 512;
  const int64_t vocab = 4096;
  const Tensor h = RequireGrad(Zeros({rows, 16}));
  const Tensor w = RequireGrad(Zeros({vocab, 16}));
  const Tensor targets = RandomIndices({rows}, vocab, 1);
  const auto peak = [&](int64_t chunk) {
    allocator.ResetPeak();
    const int64_t before = allocator.stats().current_bytes;
    const Tensor loss = LinearCrossEntropy(h, w, targets, {}, chunk);
    return allocator.stats().peak_bytes - before;
  };
  const int64_t whole = rows * vocab * 4;
  EXPECT_GE(peak(rows), whole);
  EXPECT_LT(peak(64), whole / 4);
}

TEST(LinearCrossEntropyTest, OfNoRows) {
  const Tensor h = RequireGrad(Zeros({0, 8}));
  const Tensor w = RequireGrad(Full({5, 8}, 1.0));
  const Tensor none = Zeros({0}, DType::kInt64);
  EXPECT_TRUE(std::isnan(LinearCrossEntropy(h, w, none, {}, 2).Item()));
  const Tensor loss = LinearCrossEntropy(h, w, none, {.reduction = LossReduction::kSum}, 2);
  EXPECT_EQ(loss.Item(), 0);
  Backward(loss);
  EXPECT_EQ(Grad(h).shape(), h.shape());
  EXPECT_EQ(Grad(w).ToVector<float>(), std::vector<float>(40));
  EXPECT_THROW(LinearCrossEntropy(h, Zeros({5, 7}), none, {}, 2), Error);
}

TEST(LinearCrossEntropyTest, RefusesWhatItCannotDo) {
  const Tensor h = Zeros({4, 8});
  const Tensor w = Zeros({5, 8});
  const Tensor targets = Zeros({4}, DType::kInt64);
  EXPECT_THROW(LinearCrossEntropy(h, w, targets, {.reduction = LossReduction::kNone}, 2), Error);
  EXPECT_THROW(
      LinearCrossEntropy(h, w, targets, {.class_weights = Full({5}, 1.0, DType::kFloat32)}, 2),
      Error);
  EXPECT_THROW(LinearCrossEntropy(h, w, targets, {}, 0), Error);
  EXPECT_THROW(LinearCrossEntropy(h, w, targets, {.label_smoothing = 1.5}, 2), Error);
  EXPECT_THROW(LinearCrossEntropy(h, w, Zeros({3}, DType::kInt64), {}, 2), Error);
  EXPECT_THROW(LinearCrossEntropy(h, Zeros({5, 7}), targets, {}, 2), Error);
}

}  // namespace
}  // namespace tessera
