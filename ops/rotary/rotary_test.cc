// SPDX-License-Identifier: Apache-2.0
#include "ops/rotary/rotary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>

#include "ops/matmul/matmul.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

// Rotation as multiplication of complex numbers.
OpFn Naive(int64_t dims, bool interleaved, double scale) {
  return [=](const Tensors& in) {
    const Tensor& x = in[0];
    Tensor y = EmptyLike(x);
    CopyInto(y, x);
    const int64_t h = x.size(1), t = x.size(2), d = x.size(3);
    for (int64_t row = 0; row < x.numel() / d; ++row) {
      const int64_t position = in[1].data<int64_t>()[row / (h * t) * t + row % t];
      for (int64_t p = 0; p < dims / 2; ++p) {
        const int64_t a = row * d + (interleaved ? 2 * p : p);
        const int64_t b = row * d + (interleaved ? 2 * p + 1 : p + dims / 2);
        const double angle =
            static_cast<double>(position) *
            std::pow(100.0, -2.0 * static_cast<double>(p) / static_cast<double>(dims));
        const std::complex<double> z =
            std::complex<double>(x.data<double>()[a], x.data<double>()[b]) *
            std::polar(scale, angle);
        y.data<double>()[a] = z.real();
        y.data<double>()[b] = z.imag();
      }
    }
    return Tensors{y};
  };
}

RotaryOptions OptionsOf(int64_t dims, bool interleaved, double scale = 1.0) {
  return {.inverse_frequencies = RotaryFrequencies(dims, 100.0),
          .scale = scale,
          .pairs = interleaved ? RotaryPairs::kInterleaved : RotaryPairs::kHalves};
}

TEST(RotaryTest, RotatesPairs) {
  for (const bool interleaved : {false, true}) {
    for (const int64_t dims : {6, 4, 0}) {
      const double scale = dims == 4 ? 1.25 : 1.0;
      const RotaryOptions options = OptionsOf(dims, interleaved, scale);
      CheckOp({.name = "rotary",
               .op = [=](const Tensors& in) { return Tensors{Rotary(in[0], in[1], options)}; },
               .reference = Naive(dims, interleaved, scale),
               .inputs = {RandomTensor({2, 3, 4, 6}, 1), RandomIndices({2, 4}, 50, 2)},
               .sum_length = 2});
    }
  }
}

// Heads of a packed projection, read where they lie: rotated by groups of features, whole or not,
// with and without features that stay, more heads and tokens than a block takes at once.
TEST(RotaryTest, PackedHeads) {
  struct Case {
    int64_t heads, tokens, head_dim, dims;
  };
  for (const Case& c : {Case{3, 5, 32, 32}, Case{2, 70, 48, 32}, Case{40, 3, 64, 16},
                        Case{2, 3, 20, 12}, Case{1, 2, 520, 512}}) {
    for (const bool interleaved : {false, true}) {
      const RotaryOptions options = OptionsOf(c.dims, interleaved);
      const auto heads = [=](const Tensor& packed_BTHD) {
        return Transpose(Slice(packed_BTHD, 2, 1, c.heads), 1, 2);
      };
      CheckOp(
          {.name = Concat("rotary of packed heads ", c.head_dim, " ", c.dims),
           .op = [=](const Tensors& in) { return Tensors{Rotary(heads(in[0]), in[1], options)}; },
           .reference =
               [=](const Tensors& in) {
                 const Tensors whole = {heads(in[0]).ContiguousCopy(), in[1]};
                 return Naive(c.dims, interleaved, 1.0)(whole);
               },
           .inputs = {RandomTensor({2, c.tokens, c.heads + 2, c.head_dim}, 1),
                      RandomIndices({2, c.tokens}, 50, 2)},
           .sum_length = 2});
    }
  }
}

// Two coordinates: each half of the features is rotated as a tensor of its own.
TEST(RotaryTest, EveryCoordinateRotatesItsPart) {
  for (const bool interleaved : {false, true}) {
    for (const int64_t dims : {2, 4}) {
      const RotaryOptions options = OptionsOf(dims, interleaved);
      CheckOp({.name = "rotary of two coordinates",
               .op = [=](const Tensors& in) { return Tensors{Rotary(in[0], in[1], options)}; },
               .reference =
                   [=](const Tensors& in) {
                     Tensors halves;
                     for (int64_t part = 0; part < 2; ++part) {
                       const Tensors one = {Slice(in[0], 3, 4 * part, 4).ContiguousCopy(),
                                            Select(in[1], 1, part).ContiguousCopy()};
                       halves.push_back(Naive(dims, interleaved, 1.0)(one)[0]);
                     }
                     return Tensors{Cat(halves, 3)};
                   },
               .inputs = {RandomTensor({2, 3, 5, 8}, 1), RandomIndices({2, 2, 5}, 50, 2)},
               .sum_length = 2});
    }
  }
}

// What it is for: scores depend on the distance of positions only.
TEST(RotaryTest, ScoresDependOnDistance) {
  const Tensor q = RandomTensor({1, 1, 1, 8}, 1);
  const Tensor k = RandomTensor({1, 1, 1, 8}, 2);
  const auto score = [&](int64_t i, int64_t j) {
    const RotaryOptions options = OptionsOf(8, false);
    const Tensor a = Rotary(q, Full({1, 1}, static_cast<double>(i), DType::kInt64), options);
    const Tensor b = Rotary(k, Full({1, 1}, static_cast<double>(j), DType::kInt64), options);
    return Matmul(a, Transpose(b, -1, -2)).Item();
  };
  EXPECT_NEAR(score(3, 7), score(103, 107), 1e-12);
  EXPECT_GT(std::abs(score(3, 7) - score(3, 9)), 1e-6);
}

TEST(RotaryTest, RefusesMisuse) {
  const auto rotate = [](const Shape& x, const Shape& positions, int64_t dims) {
    return Rotary(Zeros(x), Zeros(positions, DType::kInt64), OptionsOf(dims, false));
  };
  EXPECT_THROW(RotaryFrequencies(5, 100.0), Error);
  EXPECT_THROW(rotate({1, 1, 2, 5}, {1, 2}, 6), Error);
  EXPECT_THROW(rotate({1, 1, 2, 4}, {1, 3}, 4), Error);
  EXPECT_THROW(rotate({1, 1, 2, 6}, {1, 2, 2}, 4), Error);
  EXPECT_THROW(rotate({1, 1, 2, 5}, {1, 2, 2}, 2), Error);
  EXPECT_THROW(rotate({1, 1, 1, 1024}, {1, 1}, 1024), Error);
}

}  // namespace
}  // namespace tessera
