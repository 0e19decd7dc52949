// SPDX-License-Identifier: Apache-2.0
#include "ops/norm/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <vector>

#include "autograd/autograd.h"
#include "core/thread_communicator.h"
#include "core/thread_pool.h"
#include "ops/elementwise/elementwise.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

Tensor Optional(const Tensor& t) { return t.defined() ? Contiguous(t) : t; }

// in: x, weight, bias (either may be undefined).
OpFn Naive(bool centered, double eps, double weight_offset = 0) {
  return [=](const Tensors& in) {
    Tensor y = EmptyLike(in[0]);
    const int64_t n = in[0].size(-1);
    for (int64_t r = 0; n > 0 && r < in[0].numel() / n; ++r) {
      const double* x = in[0].data<double>() + r * n;
      double mean = 0;
      double square = 0;
      for (int64_t j = 0; j < n; ++j) mean += x[j] / static_cast<double>(n);
      if (!centered) mean = 0;
      for (int64_t j = 0; j < n; ++j) {
        square += (x[j] - mean) * (x[j] - mean) / static_cast<double>(n);
      }
      for (int64_t j = 0; j < n; ++j) {
        double v = (x[j] - mean) / std::sqrt(square + eps);
        if (in[1].defined()) v *= in[1].data<double>()[j] + weight_offset;
        if (in.size() > 2 && in[2].defined()) v += in[2].data<double>()[j];
        y.data<double>()[r * n + j] = v;
      }
    }
    return Tensors{y};
  };
}

TEST(NormTest, LayerNorm) {
  // On a GPU: several rows at once by groups, and rows of more elements than a block has threads.
  for (const Shape& shape : {Shape{5}, Shape{2, 3, 17}, Shape{130, 33}, Shape{1, 1}, Shape{0, 4},
                             Shape{67, 72}, Shape{2, 1101}}) {
    for (const bool affine : {true, false}) {
      const int64_t n = shape[-1];
      CheckOp({.name = "layer_norm",
               .op =
                   [](const Tensors& in) {
                     return Tensors{LayerNorm(in[0], Optional(in[1]), Optional(in[2]), 1e-5)};
                   },
               .reference = Naive(true, 1e-5),
               .inputs = {RandomTensor(shape, 1), affine ? RandomTensor({n}, 2) : Tensor(),
                          affine ? RandomTensor({n}, 3) : Tensor()},
               .sum_length = 40,
               .scale_floor = 1});
    }
  }
}

TEST(NormTest, RmsNorm) {
  CheckOp({.name = "rms_norm",
           .op = [](const Tensors& in) { return Tensors{RmsNorm(in[0], Optional(in[1]), 1e-6)}; },
           .reference = Naive(false, 1e-6),
           .inputs = {RandomTensor({3, 4, 19}, 1), RandomTensor({19}, 2)},
           .sum_length = 40});
}

TEST(NormTest, RmsNormWithAnOffsetOfItsWeights) {
  for (const Shape& shape : {Shape{3, 4, 19}, Shape{67, 72}, Shape{2, 1101}}) {
    CheckOp(
        {.name = "rms_norm of 1 + weight",
         .op =
             [](const Tensors& in) { return Tensors{RmsNorm(in[0], Optional(in[1]), 1e-6, 1.0)}; },
         .reference = Naive(false, 1e-6, 1.0),
         .inputs = {RandomTensor(shape, 1), RandomTensor({shape[-1]}, 2)},
         .sum_length = 40,
         .scale_floor = 1});
  }
}

TEST(NormTest, FusedEqualsComposed) {
  const Tensor x = RandomTensor({70, 19}, 1);
  const Tensor r = RandomTensor({70, 19}, 2);
  const Tensor w = RandomTensor({19}, 3);
  const Tensor b = RandomTensor({19}, 4);
  CheckOp({.name = "layer_norm_residual",
           .op =
               [](const Tensors& in) {
                 const ResidualNorm out =
                     LayerNormResidual(in[0], in[1], Contiguous(in[2]), Contiguous(in[3]), 1e-5);
                 return Tensors{out.sum, out.normed};
               },
           .reference =
               [](const Tensors& in) {
                 const Tensor sum = Add(in[0], in[1]);
                 return Tensors{sum, LayerNorm(sum, in[2], in[3], 1e-5)};
               },
           .inputs = {x, r, w, b},
           .sum_length = 70});
  CheckOp({.name = "rms_norm_residual",
           .op =
               [](const Tensors& in) {
                 const ResidualNorm out =
                     RmsNormResidual(in[0], in[1], Contiguous(in[2]), 1e-5, 0.5);
                 return Tensors{out.sum, out.normed};
               },
           .reference =
               [](const Tensors& in) {
                 const Tensor sum = Add(in[0], in[1]);
                 return Tensors{sum, RmsNorm(sum, in[2], 1e-5, 0.5)};
               },
           .inputs = {x, r, w},
           .sum_length = 70});
}

// The stream that continues is x, and its gradient is added as the norm's is written: the same
// bits.
TEST(NormTest, WithoutAResidualTheSumIsX) {
  for (const bool centered : {true, false}) {
    const auto norm = [centered](const Tensor& x, const Tensor& w) {
      return centered ? LayerNormResidual(x, Tensor(), w, Tensor(), 1e-5)
                      : RmsNormResidual(x, Tensor(), w, 1e-5);
    };
    CheckOp({.name = "norm without a residual",
             .op =
                 [&](const Tensors& in) {
                   const ResidualNorm out = norm(in[0], Contiguous(in[1]));
                   return Tensors{Mul(out.sum, 2.0), out.normed};
                 },
             .reference =
                 [&](const Tensors& in) {
                   return Tensors{Mul(in[0], 2.0), centered
                                                       ? LayerNorm(in[0], in[1], Tensor(), 1e-5)
                                                       : RmsNorm(in[0], in[1], 1e-5)};
                 },
             .inputs = {RandomTensor({70, 19}, 1), RandomTensor({19}, 2)},
             .sum_length = 70});

    const Tensor seed = CastCopy(RandomTensor({70, 19}, 3), DType::kFloat32);
    const auto gradient = [&](bool fused) {
      const Tensor x = RequireGrad(CastCopy(RandomTensor({70, 19}, 1), DType::kFloat32));
      const Tensor w = RequireGrad(CastCopy(RandomTensor({19}, 2), DType::kFloat32));
      const ResidualNorm out = norm(x, w);
      EXPECT_EQ(out.sum.raw_data(), x.raw_data());
      Backward({Mul(out.normed, fused ? out.sum : x)}, {seed});
      return Grad(x).ToVector<float>();
    };
    EXPECT_EQ(gradient(true), gradient(false));
  }
}

TEST(NormTest, OnlyTheSumIsUsed) {
  const Tensor x = RequireGrad(Full({2, 3}, 1.0));
  const Tensor residual = RequireGrad(Full({2, 3}, 2.0));
  const Tensor w = RequireGrad(Full({3}, 1.0));
  const Tensor b = RequireGrad(Full({3}, 1.0));
  const ResidualNorm out = LayerNormResidual(x, residual, w, b, 1e-5);
  Backward({out.sum}, {Full({2, 3}, 3.0)});
  EXPECT_EQ(Grad(x).ToVector<float>()[5], 3.0f);
  EXPECT_EQ(Grad(residual).ToVector<float>()[5], 3.0f);
  EXPECT_FALSE(Grad(w).defined());
  EXPECT_FALSE(Grad(b).defined());
}

TEST(NormTest, GradientBitsDoNotDependOnThreads) {
  const auto run = [] {
    const Tensor x = CastCopy(RandomTensor({300, 40}, 7), DType::kFloat32);
    const Tensor w = RequireGrad(Full({40}, 1.5));
    const Tensor y = LayerNorm(x, w, Tensor(), 1e-5);
    Backward({y}, {x});
    return Grad(w).ToVector<float>();
  };
  SetNumThreads(1);
  const std::vector<float> one = run();
  SetNumThreads(3);
  EXPECT_EQ(run(), one);
  SetNumThreads(AvailableCores());
}

// Gradients of weights in a tree over tokens: the same bits whoever has which tokens, and those of
// the sum over all of them but for rounding.
TEST(NormTest, TreesOverTokensDoNotDependOnRanks) {
  for (const Shape& shape :
       {Shape{3, 21, 17}, Shape{1, 5, 4}, Shape{2, 700, 3}, Shape{2, 6, 2, 5}}) {
    const int64_t n = shape[-1];
    for (const bool centered : {true, false}) {
      const auto step = [&](const Tensor& x, const Tensor& dy,
                            const std::optional<TokenTree>& tree) {
        const Tensor own = RequireGrad(CastCopy(x, DType::kFloat32));
        const Tensor w = RequireGrad(CastCopy(RandomTensor({n}, 2), DType::kFloat32));
        const Tensor b = RequireGrad(CastCopy(RandomTensor({n}, 3), DType::kFloat32));
        const ResidualNorm y = centered ? LayerNormResidual(own, {}, w, b, 1e-5, tree)
                                        : RmsNormResidual(own, {}, w, 1e-5, 0, tree);
        Backward({y.normed}, {CastCopy(dy, DType::kFloat32)});
        return std::vector<Tensor>{Grad(w), centered ? Grad(b) : Grad(w)};
      };
      const Tensor x = RandomTensor(shape, 1);
      const Tensor dy = RandomTensor(shape, 4);
      const std::vector<Tensor> one = step(x, dy, TokenTree{});
      const std::vector<Tensor> plain = step(x, dy, std::nullopt);
      for (size_t i = 0; i < one.size(); ++i) ExpectClose(one[i], plain[i], 1e-5, "sums");
      for (const int ranks : {2, 4, 8}) {
        RunRanks(ranks, [&](std::shared_ptr<Communicator> world) {
          const Share share = EvenShare(shape[1], ranks, world->rank());
          const auto part = [&](const Tensor& t) { return Slice(t, 1, share.begin, share.count); };
          const std::vector<Tensor> own = step(part(x), part(dy), TokenTree{world});
          for (size_t i = 0; i < one.size(); ++i) {
            EXPECT_EQ(own[i].ToVector<float>(), one[i].ToVector<float>()) << ranks << " " << shape;
          }
        });
      }
    }
  }
}

// A share without tokens adds nothing to the others' sums, not even a zero's sign.
TEST(NormTest, AShareWithoutTokensIsANegativeZero) {
  const Tensor w = RequireGrad(Full({4}, 1.0));
  Backward({LayerNorm(Zeros({2, 0, 4}), w, Tensor(), 1e-5, TokenTree{})}, {Zeros({2, 0, 4})});
  for (const float g : Grad(w).ToVector<float>()) {
    EXPECT_EQ(g, 0.0f);
    EXPECT_TRUE(std::signbit(g));
  }
}

TEST(NormTest, ParametersMayBeStrided) {
  const Tensor x = RandomTensor({3, 2}, 1);
  const Tensor columns = RequireGrad(RandomTensor({2, 2}, 2));
  const Tensor weight = RequireGrad(Contiguous(Select(columns.Detach(), 1, 0)));
  const Tensor bias = RequireGrad(Contiguous(Select(columns.Detach(), 1, 1)));
  const Tensor strided = LayerNorm(x, Select(columns, 1, 0), Select(columns, 1, 1), 1e-5);
  const Tensor plain = LayerNorm(x, weight, bias, 1e-5);
  EXPECT_EQ(strided.ToVector<double>(), plain.ToVector<double>());
  Backward({strided, plain}, {x, x});
  EXPECT_EQ(Grad(columns).ToVector<double>(),
            Stack({Grad(weight), Grad(bias)}, 1).ToVector<double>());
}

TEST(NormTest, RefusesWrongShapes) {
  EXPECT_THROW(LayerNorm(Zeros({2, 3}), Zeros({2}), Tensor(), 1e-5), Error);
  EXPECT_THROW(RmsNorm(Zeros({2, 3}), Zeros({3}, DType::kFloat64), 1e-5), Error);
  EXPECT_THROW(LayerNormResidual(Zeros({2, 3}), Zeros({3}), Tensor(), Tensor(), 1e-5), Error);
  for (const Tensor& x : {Zeros({2, 3}, DType::kInt64), Zeros({})}) {
    try {
      LayerNorm(x, Tensor(), Tensor(), 1e-5);
      ADD_FAILURE() << x;
    } catch (const Error& error) {
      EXPECT_EQ(error.detail().rfind("cannot normalise", 0), 0u) << error.what();
    }
  }
}

}  // namespace
}  // namespace tessera
