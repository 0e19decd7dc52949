// SPDX-License-Identifier: Apache-2.0
#include "ops/rearrange/rearrange.h"

#include <gtest/gtest.h>

#include <functional>

#include "ops/testing/op_check.h"

namespace tessera {
namespace {

using Place = std::function<Shape(const Shape&)>;

// y at each place is x at from(place).
OpFn Moved(const Shape& to, const Place& from) {
  return [=](const Tensors& in) {
    Tensor y = Empty(to, DType::kFloat64);
    const Shape strides = ContiguousStrides(to);
    for (int64_t i = 0; i < y.numel(); ++i) {
      Shape place = to;
      for (int d = 0; d < to.ndim(); ++d) place[d] = i / strides[d] % to[d];
      const Shape source = from(place);
      int64_t offset = 0;
      for (int d = 0; d < source.ndim(); ++d) offset += source[d] * in[0].stride(d);
      y.data<double>()[i] = in[0].data<double>()[offset];
    }
    return Tensors{y};
  };
}

void CheckMove(const char* name, const std::function<Tensor(const Tensor&)>& op, const Shape& shape,
               const Shape& to, const Place& from) {
  CheckOp({.name = name,
           .op = [&](const Tensors& in) { return Tensors{op(in[0])}; },
           .reference = Moved(to, from),
           .inputs = {RandomTensor(shape, 1)},
           .sum_length = 12});
}

TEST(RearrangeTest, Repeat) {
  CheckMove(
      "repeat",
      [](const Tensor& x) {
        return Repeat(x, {2, 1, 3});
      },
      {3, 2, 5}, {6, 2, 15},
      [](const Shape& p) {
        return Shape{p[0] % 3, p[1], p[2] % 5};
      });
  CheckMove(
      "repeat with new dims",
      [](const Tensor& x) {
        return Repeat(x, {2, 2, 1});
      },
      {3}, {2, 2, 3}, [](const Shape& p) { return Shape{p[2]}; });
  CheckMove(
      "repeat once",
      [](const Tensor& x) {
        return Repeat(x, {1, 1});
      },
      {2, 3}, {2, 3}, [](const Shape& p) { return p; });
  // As many dims as there may be.
  CheckMove(
      "repeat of eight dims",
      [](const Tensor& x) {
        return Repeat(x, {1, 2, 1, 2, 1, 1, 1, 2});
      },
      {1, 2, 1, 1, 2, 1, 1, 3}, {1, 4, 1, 2, 2, 1, 1, 6},
      [](const Shape& p) { return Shape{0, p[1] % 2, 0, 0, p[4], 0, 0, p[7] % 3}; });
  EXPECT_EQ(Repeat(Zeros({2, 3}), {0, 2}).shape(), (Shape{0, 6}));
  EXPECT_EQ(Repeat(Arange(2), {3}).ToVector<int64_t>(), (std::vector<int64_t>{0, 1, 0, 1, 0, 1}));
}

TEST(RearrangeTest, RepeatInterleave) {
  CheckMove(
      "repeat_interleave", [](const Tensor& x) { return RepeatInterleave(x, 3, -2); }, {3, 2, 5},
      {3, 6, 5},
      [](const Shape& p) {
        return Shape{p[0], p[1] / 3, p[2]};
      });
  CheckMove(
      "repeat_interleave of a vector", [](const Tensor& x) { return RepeatInterleave(x, 2, 0); },
      {7}, {14}, [](const Shape& p) { return Shape{p[0] / 2}; });
}

TEST(RearrangeTest, Flip) {
  CheckMove(
      "flip", [](const Tensor& x) { return Flip(x, {1}); }, {3, 7}, {3, 7},
      [](const Shape& p) {
        return Shape{p[0], 6 - p[1]};
      });
  CheckMove(
      "flip of two dims",
      [](const Tensor& x) {
        return Flip(x, {0, -1});
      },
      {3, 2, 5}, {3, 2, 5},
      [](const Shape& p) {
        return Shape{2 - p[0], p[1], 4 - p[2]};
      });
  CheckMove(
      "flip of none", [](const Tensor& x) { return Flip(x, {}); }, {3}, {3},
      [](const Shape& p) { return p; });
}

TEST(RearrangeTest, Roll) {
  for (const int64_t shift : {int64_t{2}, int64_t{-3}, int64_t{0}, int64_t{12}}) {
    CheckMove(
        "roll", [&](const Tensor& x) { return Roll(x, shift, 1); }, {2, 5, 3}, {2, 5, 3},
        [&](const Shape& p) {
          return Shape{p[0], (p[1] - shift + 15) % 5, p[2]};
        });
  }
  EXPECT_EQ(Roll(Arange(4), 1, 0).ToVector<int64_t>(), (std::vector<int64_t>{3, 0, 1, 2}));
}

TEST(RearrangeTest, Refusals) {
  const Tensor x = Zeros({2, 3});
  EXPECT_THROW(Repeat(x, {2}), Error);
  EXPECT_THROW(Repeat(x, {2, -1}), Error);
  EXPECT_THROW(RepeatInterleave(x, -1, 0), Error);
  EXPECT_THROW(Flip(x, {0, -2}), Error);
  EXPECT_THROW(Flip(x, {2}), Error);
  EXPECT_THROW(Roll(x, 1, 2), Error);
}

}  // namespace
}  // namespace tessera
