// SPDX-License-Identifier: Apache-2.0
#include "ops/view/view.h"

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduction/sum.h"
#include "ops/testing/op_check.h"

namespace tessera {
namespace {

// y[i] = x[map(i)] for an output of `shape`.
OpFn Rearranged(const Shape& shape, std::function<int64_t(int64_t)> map) {
  return [shape, map](const Tensors& in) {
    Tensor y = Empty(shape, DType::kFloat64);
    for (int64_t i = 0; i < y.numel(); ++i) y.data<double>()[i] = in[0].data<double>()[map(i)];
    return Tensors{y};
  };
}

void CheckView(const char* name, std::function<Tensor(const Tensor&)> op, const Shape& from,
               const Shape& to, std::function<int64_t(int64_t)> map) {
  CheckOp({.name = name,
           .op = [op](const Tensors& in) { return Tensors{op(in[0])}; },
           .reference = Rearranged(to, map),
           .inputs = {RandomTensor(from, 1)}});
}

TEST(ViewTest, Rearrangements) {
  const auto same = [](int64_t i) { return i; };
  CheckView(
      "reshape",
      [](const Tensor& x) {
        return Reshape(x, {4, -1});
      },
      {2, 3, 2}, {4, 3}, same);
  CheckView(
      "unsqueeze", [](const Tensor& x) { return Unsqueeze(x, -1); }, {2, 3}, {2, 3, 1}, same);
  CheckView(
      "squeeze", [](const Tensor& x) { return Squeeze(x, 1); }, {2, 1, 3}, {2, 3}, same);
  CheckView(
      "contiguous", [](const Tensor& x) { return Contiguous(x); }, {2, 3}, {2, 3}, same);
  CheckView(
      "transpose", [](const Tensor& x) { return Transpose(x, 0, -1); }, {2, 3, 4}, {4, 3, 2},
      [](int64_t i) { return i % 2 * 12 + i / 2 % 3 * 4 + i / 6; });
  CheckView(
      "permute",
      [](const Tensor& x) {
        return Permute(x, {1, 2, 0});
      },
      {2, 3, 4}, {3, 4, 2}, [](int64_t i) { return i % 2 * 12 + i / 8 * 4 + i / 2 % 4; });
  CheckView(
      "slice", [](const Tensor& x) { return Slice(x, 1, 1, 2); }, {2, 4}, {2, 2},
      [](int64_t i) { return i / 2 * 4 + i % 2 + 1; });
  CheckView(
      "select", [](const Tensor& x) { return Select(x, 1, 2); }, {2, 4}, {2},
      [](int64_t i) { return i * 4 + 2; });
  CheckView(
      "reshape of a transpose copies",
      [](const Tensor& x) { return Reshape(Transpose(x, 0, 1), {6}); }, {2, 3}, {6},
      [](int64_t i) { return i % 2 * 3 + i / 2; });
}

TEST(ViewTest, NegativePlacesCountFromTheEnd) {
  CheckView(
      "slice from the end", [](const Tensor& x) { return Slice(x, 1, -3, 2); }, {2, 4}, {2, 2},
      [](int64_t i) { return i / 2 * 4 + i % 2 + 1; });
  CheckView(
      "slice to the end", [](const Tensor& x) { return Slice(x, -1, -3); }, {2, 4}, {2, 3},
      [](int64_t i) { return i / 3 * 4 + i % 3 + 1; });
  CheckView(
      "slice without the last", [](const Tensor& x) { return SliceTo(x, 1, 1, -1); }, {2, 4},
      {2, 2}, [](int64_t i) { return i / 2 * 4 + i % 2 + 1; });
  CheckView(
      "select the last", [](const Tensor& x) { return Select(x, 1, -1); }, {2, 4}, {2},
      [](int64_t i) { return i * 4 + 3; });
  const Tensor x = Zeros({5});
  EXPECT_EQ(Slice(x, 0, 2).size(0), 3);
  EXPECT_EQ(SliceTo(x, 0, -100, 100).size(0), 5);
  EXPECT_EQ(SliceTo(x, 0, 4, 2).size(0), 0);
  EXPECT_THROW(Select(x, 0, -6), Error);
  EXPECT_THROW(Slice(x, 0, -6), Error);
  EXPECT_THROW(Slice(x, 0, 6), Error);
  EXPECT_THROW(Slice(x, 0, -2, 3), Error);
}

// The gradients of many parts of one tensor are added up in the memory of one whole tensor, whether
// it is a leaf or a result, and parts that overlap are added, too.
TEST(ViewTest, GradientsOfManyPartsAreAddedInPlace) {
  constexpr int64_t kParts = 16;
  const Tensor leaf = RequireGrad(RandomTensor({kParts, 3}, 1));
  for (const bool of_result : {false, true}) {
    SetGrad(leaf, Tensor());
    const Tensor stack = of_result ? Mul(leaf, 2.0) : leaf;
    Tensor sum = Sum(Slice(stack, 0, 2, 5));
    for (int64_t i = 0; i < kParts; ++i) {
      sum += Sum(Mul(Select(stack, 0, i), static_cast<double>(i)));
    }
    Backward(sum);
    const std::vector<double> grad = Grad(leaf).ToVector<double>();
    for (int64_t i = 0; i < kParts * 3; ++i) {
      const int64_t row = i / 3;
      const double expected = static_cast<double>(row) + (row >= 2 && row < 7 ? 1 : 0);
      EXPECT_EQ(grad[static_cast<size_t>(i)], expected * (of_result ? 2 : 1)) << i;
    }
  }
}

// Each part after the first is added to where it belongs: the sum of many stays in one storage.
TEST(ViewTest, AStackOfPartsHasOneGradient) {
  const Tensor leaf = RequireGrad(Zeros({8, 3}));
  Backward(Sum(Select(leaf, 0, 0)));
  const Tensor grad = Grad(leaf);
  const uint64_t before = grad.storage()->version();
  Tensor sum = Full({}, 0.0);
  for (int64_t i = 0; i < 8; ++i) sum += Sum(Select(leaf, 0, i));
  Backward(sum);
  EXPECT_EQ(Grad(leaf).storage(), grad.storage());
  EXPECT_EQ(grad.storage()->version(), before + 8);
  EXPECT_EQ(grad.ToVector<float>()[0], 2);
  EXPECT_EQ(grad.ToVector<float>()[23], 1);
}

TEST(ViewTest, ReshapeSharesStorageWhereStridesAllow) {
  const Tensor x = Zeros({4, 6, 5});
  const Tensor part = Slice(x, 0, 1, 2);
  EXPECT_EQ(Reshape(part, {2, 30}).storage(), x.storage());
  const Tensor heads = Slice(x, 2, 0, 4);  // [4, 6, 4] with gaps: the last dim still splits
  EXPECT_EQ(Reshape(heads, {24, 2, 2}).storage(), x.storage());
  EXPECT_NE(Reshape(heads, {4, 24}).storage(), x.storage());
  // Without elements, and with one alone.
  EXPECT_EQ(Reshape(Zeros({2, 0}), {0, -1}).shape(), Shape({0, 0}));
  EXPECT_EQ(Reshape(x.AsStrided({1, 1}, {5, 7}, 3), {1}).storage(), x.storage());
}

TEST(ViewTest, CatStackSplitPad) {
  CheckOp({.name = "cat",
           .op =
               [](const Tensors& in) {
                 return Tensors{Cat({in[0], in[1]}, 1)};
               },
           .reference =
               [](const Tensors& in) {
                 Tensor y = Empty({2, 5}, DType::kFloat64);
                 for (int64_t i = 0; i < 10; ++i) {
                   const int64_t column = i % 5;
                   y.data<double>()[i] = column < 2 ? in[0].data<double>()[i / 5 * 2 + column]
                                                    : in[1].data<double>()[i / 5 * 3 + column - 2];
                 }
                 return Tensors{y};
               },
           .inputs = {RandomTensor({2, 2}, 1), RandomTensor({2, 3}, 2)}});
  CheckOp({.name = "stack",
           .op =
               [](const Tensors& in) {
                 return Tensors{Stack({in[0], in[1]}, -1)};
               },
           .reference =
               [](const Tensors& in) {
                 Tensor y = Empty({3, 2}, DType::kFloat64);
                 for (int64_t i = 0; i < 6; ++i) {
                   y.data<double>()[i] = in[static_cast<size_t>(i % 2)].data<double>()[i / 2];
                 }
                 return Tensors{y};
               },
           .inputs = {RandomTensor({3}, 3), RandomTensor({3}, 4)}});
  EXPECT_EQ(Stack({RandomTensor({3, 2}, 5)}, -1).shape(), Shape({3, 2, 1}));
  CheckOp({.name = "split",
           .op =
               [](const Tensors& in) {
                 const Tensors parts = Split(in[0], {1, 2, 1}, 1);
                 return Tensors{parts[0], parts[1]};  // the last part gets no gradient
               },
           .reference =
               [](const Tensors& in) {
                 const double* x = in[0].data<double>();
                 return Tensors{Tensor::FromVector<double>({x[0], x[4]}, {2, 1}),
                                Tensor::FromVector<double>({x[1], x[2], x[5], x[6]}, {2, 2})};
               },
           .inputs = {RandomTensor({2, 4}, 5)}});
  CheckOp({.name = "chunk",
           .op = [](const Tensors& in) { return Chunk(in[0], 3, -1); },
           .reference =
               [](const Tensors& in) {
                 const double* x = in[0].data<double>();
                 return Tensors{
                     Tensor::FromVector<double>({x[0], x[1], x[5], x[6]}, {2, 2}),
                     Tensor::FromVector<double>({x[2], x[3], x[7], x[8]}, {2, 2}),
                     Tensor::FromVector<double>({x[4], x[9]}, {2, 1}),
                 };
               },
           .inputs = {RandomTensor({2, 5}, 7)}});
  EXPECT_EQ(Chunk(Zeros({5}), 4, 0).size(), 3u);  // of 2, 2 and 1
  EXPECT_EQ(Chunk(Zeros({0}), 4, 0).size(), 1u);
  CheckOp({.name = "pad",
           .op = [](const Tensors& in) { return Tensors{Pad(in[0], 1, 1, 2, -3.0)}; },
           .reference =
               [](const Tensors& in) {
                 const double* x = in[0].data<double>();
                 return Tensors{Tensor::FromVector<double>(
                     {-3, x[0], x[1], -3, -3, -3, x[2], x[3], -3, -3}, {2, 5})};
               },
           .inputs = {RandomTensor({2, 2}, 6)}});
}

TEST(ViewTest, RefusesWrongShapes) {
  const Tensor x = Zeros({2, 3});
  EXPECT_THROW(Reshape(x, {4}), Error);
  EXPECT_THROW(Reshape(x, {-1, -1}), Error);
  EXPECT_THROW(Reshape(x, {-2, -3}), Error);
  EXPECT_THROW(Permute(x, {0, 0}), Error);
  EXPECT_THROW(Slice(x, 1, 2, 2), Error);
  EXPECT_THROW(Squeeze(x, 0), Error);
  EXPECT_THROW(Cat({x, Zeros({2, 3, 1})}, 0), Error);
  EXPECT_THROW(Cat({x, Zeros({2, 4})}, 0), Error);
  EXPECT_THROW(Cat({}, 0), Error);
  EXPECT_THROW(Split(x, {1, 1}, 1), Error);
  EXPECT_THROW(Chunk(x, 0, 1), Error);
}

}  // namespace
}  // namespace tessera
