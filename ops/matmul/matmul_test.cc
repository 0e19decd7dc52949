// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/matmul.h"

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <cmath>
#include <functional>

#include "autograd/autograd.h"
#include "core/allocator.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/linear_gelu.h"
#include "ops/matmul/low_rank_linear.h"
#include "ops/matmul/product.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

// Eigen's product of a [A.., M, K] and b [B.., K, N] with batches of equal size or one.
Tensors ReferenceMatmul(const Tensors& in) {
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
  if (m * k * n == 0) return {c};
  const int64_t a_batches = a.numel() / (m * k);
  const int64_t b_batches = b.numel() / (k * n);
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using ConstMatrix = Eigen::Map<const Matrix>;
  for (int64_t i = 0; i < batches; ++i) {
    Eigen::Map<Matrix>(c.data<double>() + i * m * n, m, n) =
        ConstMatrix(a.data<double>() + i % a_batches * m * k, m, k) *
        ConstMatrix(b.data<double>() + i % b_batches * k * n, k, n);
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
             .reference = ReferenceMatmul,
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
                 return ReferenceMatmul({Transpose(in[0], -1, -2).ContiguousCopy(),
                                         Transpose(in[1], 0, 1).ContiguousCopy()});
               },
           .inputs = {RandomTensor({7, 3}, 1), RandomTensor({5, 7}, 2)},
           .sum_length = 7});
}

// A factor gives products of any number of rows their own bits, and is counted on meta.
TEST(MatmulTest, FactorsOfSeveralProducts) {
  const auto peak = [](const Device& device, const std::function<void()>& run) {
    Allocator& allocator = Allocator::For(device);
    allocator.ResetPeak();
    const int64_t before = allocator.stats().current_bytes;
    run();
    return allocator.stats().peak_bytes - before;
  };
  const auto run = [](const Tensor& a, const Tensor& b, const Tensor& bias, DType dtype) {
    return Product(a, ProductFactor(b), bias, dtype);
  };
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
    const DType wide = AccumulateDType(dtype);
    const Tensor b = CastCopy(RandomTensor({401, 67}, 1), dtype);
    const Tensor other = Transposed(CastCopy(RandomTensor({67, 401}, 2), dtype));
    const Tensor bias = CastCopy(RandomTensor({67}, 3), dtype);
    for (const int64_t rows : {0, 1, 4, 5, 33, 130}) {
      const Tensor a = CastCopy(RandomTensor({rows, 401}, 4), dtype);
      for (const Tensor& factor : {b, other}) {
        EXPECT_EQ(run(a, factor, bias, dtype).ToVector<double>(),
                  Product(a, factor, bias, dtype).ToVector<double>())
            << dtype << rows;
        EXPECT_EQ(run(a, factor, Tensor(), wide).ToVector<double>(),
                  Product(a, factor, Tensor(), wide).ToVector<double>())
            << dtype << rows;
      }
    }
    const Tensor a = Empty({5, 401}, dtype);
    const Tensor meta_a = Empty({5, 401}, dtype, Device::Meta());
    const Tensor meta_b = Empty({401, 67}, dtype, Device::Meta());
    EXPECT_EQ(peak(Device::Meta(), [&] { run(meta_a, meta_b, Tensor(), dtype); }),
              peak(Device::Cpu(), [&] { run(a, b, Tensor(), dtype); }));
  }
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
                     Tensors y = ReferenceMatmul({in[0], w});
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

// down(gelu(up(x))) with a loop over everything.
Tensors NaiveMlp(const Tensors& in, bool out_in) {
  const auto layer = [&](const Tensor& x, const Tensor& weight, const Tensor& bias) {
    Tensor y = ReferenceMatmul({x, out_in ? Transpose(weight, 0, 1).ContiguousCopy() : weight})[0];
    for (int64_t i = 0; bias.defined() && i < y.numel(); ++i) {
      y.data<double>()[i] += bias.data<double>()[i % bias.numel()];
    }
    return y;
  };
  Tensor inner = layer(in[0], in[1], in[2]);
  for (int64_t i = 0; i < inner.numel(); ++i) {
    double& v = inner.data<double>()[i];
    v = 0.5 * v * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (v + 0.044715 * v * v * v)));
  }
  return {layer(inner, in[3], in[4])};
}

TEST(MatmulTest, LinearsWithGeluBetween) {
  // Inner sizes that epilogues take, and one that they do not.
  for (const int64_t inner : {16, 13}) {
    for (const bool out_in : {true, false}) {
      for (const bool has_bias : {true, false}) {
        const auto weight = [&](int64_t in, int64_t out, uint64_t seed) {
          return RandomTensor(out_in ? Shape{out, in} : Shape{in, out}, seed, 0.5);
        };
        CheckOp(
            {.name =
                 Concat("mlp of ", inner, out_in ? " out_in" : " in_out", has_bias ? " bias" : ""),
             .op =
                 [=](const Tensors& in) {
                   const LinearLayout layout = out_in ? LinearLayout::kOutIn : LinearLayout::kInOut;
                   const auto bias = [&](int i) { return has_bias ? Contiguous(in[i]) : Tensor(); };
                   return Tensors{LinearOfGelu(LinearGelu(in[0], in[1], bias(2), layout), in[3],
                                               bias(4), layout)};
                 },
             .reference = [=](const Tensors& in) { return NaiveMlp(in, out_in); },
             .inputs = {RandomTensor({2, 3, 6}, 1), weight(6, inner, 2),
                        has_bias ? RandomTensor({inner}, 3) : Tensor(), weight(inner, 5, 4),
                        has_bias ? RandomTensor({5}, 5) : Tensor()},
             .sum_length = 40});
      }
    }
  }
}

// What GELU is taken of, the result, and the gradients of x, both weights and both biases, over two
// micro-batches.
Tensors RunMlp(bool fused, DType dtype, const Device& device, int64_t inner) {
  const auto tensor = [&](const Shape& shape, uint64_t seed) {
    return CopyTo(CastCopy(RandomTensor(shape, seed, 0.7), dtype), device);
  };
  Tensors leaves = {tensor({3, 5, 7}, 1), tensor({inner, 7}, 2), tensor({inner}, 3),
                    tensor({9, inner}, 4), tensor({9}, 5)};
  for (const Tensor& leaf : leaves) RequireGrad(leaf);
  Tensors results;
  for (uint64_t batch = 0; batch < 2; ++batch) {
    constexpr LinearLayout kLayout = LinearLayout::kOutIn;
    Tensor before;  // GELU
    Tensor y;
    if (fused) {
      const Gelued h = LinearGelu(leaves[0], leaves[1], leaves[2], kLayout);
      before = h.input();
      y = LinearOfGelu(h, leaves[3], leaves[4], kLayout);
    } else {
      before = Linear(leaves[0], leaves[1], leaves[2], kLayout);
      y = Linear(GeluTanh(before), leaves[3], leaves[4], kLayout);
    }
    results.push_back(CastCopy(before.Detach(), dtype));
    Backward({y}, {tensor({3, 5, 9}, 10 + batch)});
    results.push_back(y.Detach());
  }
  for (const Tensor& leaf : leaves) results.push_back(Grad(leaf));
  return results;
}

TEST(MatmulTest, FusedLinearsEqualTheirSteps) {
  for (const Device& device : TestDevices()) {
    for (const DType dtype :
         {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16}) {
      for (const int64_t inner : {24, 11, 0}) {
        const Tensors fused = RunMlp(true, dtype, device, inner);
        const Tensors steps = RunMlp(false, dtype, device, inner);
        for (size_t i = 0; i < fused.size(); ++i) {
          const std::string what = Concat("tensor ", i, " of ", dtype, " on ", device);
          EXPECT_EQ(fused[i].dtype(), steps[i].dtype()) << what;
          if (device.is_cpu()) {
            EXPECT_EQ(fused[i].ToVector<double>(), steps[i].ToVector<double>()) << what;
          } else {
            // The steps round what GELU is taken of, and the gradient that goes into it.
            ExpectClose(CopyTo(fused[i], Device::Cpu()), CopyTo(steps[i], Device::Cpu()),
                        16 * Epsilon(dtype), what, 1);
          }
        }
      }
    }
  }
}

TEST(MatmulTest, GeluedKeepsItsInputOnlyForTheTape) {
  const Tensor x = RandomTensor({4, 3}, 1);
  const Tensor w = RandomTensor({8, 3}, 2);
  EXPECT_FALSE(LinearGelu(x, w, Tensor(), LinearLayout::kOutIn).input().defined());
  RequireGrad(w);
  const Gelued y = LinearGelu(x, w, Tensor(), LinearLayout::kOutIn);
  EXPECT_TRUE(RequiresGrad(y.input()));
  EXPECT_FALSE(RequiresGrad(y.value()));
  // Where only the second layer trains, its gradient comes without the first's.
  const Tensor down = RequireGrad(RandomTensor({2, 8}, 3));
  const Gelued frozen = LinearGelu(x, w.Detach(), Tensor(), LinearLayout::kOutIn);
  Backward({LinearOfGelu(frozen, down, Tensor(), LinearLayout::kOutIn)}, {RandomTensor({4, 2}, 4)});
  EXPECT_TRUE(Grad(down).defined());
  EXPECT_THROW(LinearOfGelu(frozen, Zeros({2, 7}, DType::kFloat64), Tensor(), LinearLayout::kOutIn),
               Error);
}

TEST(MatmulTest, WeightGradientsAddUpOverMicroBatches) {
  for (const Device& device : TestDevices()) {
    for (const LinearLayout layout : {LinearLayout::kOutIn, LinearLayout::kInOut}) {
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
        const Shape shape = layout == LinearLayout::kOutIn ? Shape{5, 3} : Shape{3, 5};
        const Tensor w = RequireGrad(Full(shape, 1.0, dtype, device));
        const Tensor b = RequireGrad(Full({5}, 1.0, dtype, device));
        int seen = 0;
        for (int batch = 1; batch <= 3; ++batch) {
          if (batch == 3) {
            AddGradHook(w, [&](const Tensor& grad) {
              ++seen;
              EXPECT_EQ(grad.ToVector<double>()[0], 12.0);
              return Mul(grad, 10.0);
            });
          }
          const Tensor y = Linear(Full({2, 2, 3}, batch, dtype, device), w, b, layout);
          Backward({y}, {Full({2, 2, 5}, 1.0, dtype, device)});
        }
        // 4 rows of 1, then of 2, then ten times 4 rows of 3.
        EXPECT_EQ(Grad(w).ToVector<double>(), std::vector<double>(15, 132.0)) << device << dtype;
        EXPECT_EQ(Grad(b).ToVector<double>(), std::vector<double>(5, 12.0)) << device << dtype;
        EXPECT_EQ(seen, 1);
      }
    }
  }
}

// Bytes that an operation needs at most beside what it leaves, on the meta device of GPUs.
int64_t PeakOnMetaCuda(const std::function<void(const Device&)>& run) {
  const Device meta = Device::Meta(DeviceType::kCuda);
  Allocator& allocator = Allocator::For(meta);
  allocator.ResetPeak();
  const int64_t before = allocator.stats().current_bytes;
  run(meta);
  return allocator.stats().peak_bytes - before;
}

TEST(MatmulTest, MetaCudaCountsTheWorkspace) {
  constexpr int64_t kLibrary = int64_t{32} << 20;
  const auto product = [](const Shape& a, const Shape& a_strides) {
    return PeakOnMetaCuda([&](const Device& meta) {
      const Tensor storage = Empty({4096}, DType::kFloat32, meta);
      Matmul(storage.AsStrided(a, a_strides, 0), Empty({16, 8}, DType::kFloat32, meta));
    });
  };
  // 4096 elements, 16 x 8, the result 32 x 8, and the workspace.
  const int64_t operands = 4 * (4096 + 128 + 256);
  EXPECT_EQ(product({32, 16}, {16, 1}), operands + kLibrary);
  EXPECT_EQ(product({32, 16}, {1, 32}), operands + kLibrary);
  // Elements that lie apart are packed: 32 x 16 more.
  const size_t packed = static_cast<size_t>(kLibrary) + 4 * 512;
  EXPECT_EQ(product({32, 16}, {32, 2}),
            operands + static_cast<int64_t>(
                           Allocator::For(Device::Meta(DeviceType::kCuda)).RoundedSize(packed)));
  // On the CPU's there is none.
  Allocator& cpu = Allocator::For(Device::Meta());
  cpu.ResetPeak();
  const int64_t before = cpu.stats().current_bytes;
  Matmul(Empty({32, 16}, DType::kFloat32, Device::Meta()),
         Empty({16, 8}, DType::kFloat32, Device::Meta()));
  EXPECT_EQ(cpu.stats().peak_bytes - before, 4 * (512 + 128 + 256));
}

TEST(MatmulTest, MetaCudaAddsWeightGradientsInPlace) {
  // The second micro-batch needs no second gradient of the weight: 1024 x 512 in float32.
  constexpr int64_t kGradient = 4 * 1024 * 512;
  const Device meta = Device::Meta(DeviceType::kCuda);
  const Tensor w = RequireGrad(Empty({1024, 512}, DType::kBFloat16, meta));
  const auto step = [&](const Device&) {
    const Tensor y =
        Linear(Empty({4, 512}, DType::kBFloat16, meta), w, Tensor(), LinearLayout::kOutIn);
    Backward({y}, {Empty({4, 1024}, DType::kBFloat16, meta)});
  };
  const int64_t first = PeakOnMetaCuda(step);
  const int64_t second = PeakOnMetaCuda(step);
  EXPECT_EQ(first - second, kGradient);
}

// x W + bias + 1.5 (x' a^T) b^T.
Tensors NaiveLowRank(const Tensors& in, bool out_in) {
  const auto flipped = [](const Tensor& t) { return Transpose(t, 0, 1).ContiguousCopy(); };
  const Tensor term_x = in[3].defined() ? in[3] : in[0];
  const Tensor low = ReferenceMatmul({term_x, flipped(in[4])})[0];
  const Tensor term = ReferenceMatmul({low, flipped(in[5])})[0];
  Tensor y = ReferenceMatmul({in[0], out_in ? flipped(in[1]) : in[1]})[0];
  for (int64_t i = 0; i < y.numel(); ++i) {
    y.data<double>()[i] += 1.5 * term.data<double>()[i];
    if (in[2].defined()) y.data<double>()[i] += in[2].data<double>()[i % in[2].numel()];
  }
  return {y};
}

TEST(MatmulTest, LowRankLinear) {
  for (const bool out_in : {true, false}) {
    for (const bool has_bias : {true, false}) {
      for (const bool own_x : {true, false}) {
        CheckOp({.name = Concat("low rank linear", out_in ? " out_in" : " in_out",
                                has_bias ? " bias" : "", own_x ? " of another x" : ""),
                 .op =
                     [=](const Tensors& in) {
                       return Tensors{
                           LowRankLinear(in[0], in[1], has_bias ? Contiguous(in[2]) : Tensor(),
                                         out_in ? LinearLayout::kOutIn : LinearLayout::kInOut,
                                         {own_x ? in[3] : Tensor(), in[4], in[5], 1.5})};
                     },
                 .reference = [=](const Tensors& in) { return NaiveLowRank(in, out_in); },
                 .inputs = {RandomTensor({2, 3, 17}, 1),
                            RandomTensor(out_in ? Shape{9, 17} : Shape{17, 9}, 2),
                            has_bias ? RandomTensor({9}, 3) : Tensor(),
                            own_x ? RandomTensor({2, 3, 17}, 4) : Tensor(),
                            RandomTensor({3, 17}, 5), RandomTensor({9, 3}, 6)},
                 .sum_length = 60,
                 .scale_floor = 10});
      }
    }
  }
}

// As fine-tuning has it: the weight is frozen, x may be.
TEST(MatmulTest, LowRankLinearBesideWhatIsFrozen) {
  for (const bool x_trains : {true, false}) {
    const Tensor x = RandomTensor({4, 7}, 1);
    const Tensor w = RandomTensor({5, 7}, 2);
    const Tensor a = RequireGrad(RandomTensor({2, 7}, 3));
    const Tensor b = RequireGrad(RandomTensor({5, 2}, 4));
    const Tensor seed = RandomTensor({4, 5}, 5);
    if (x_trains) RequireGrad(x);
    Backward({LowRankLinear(x, w, {}, LinearLayout::kOutIn, {{}, a, b, 0.5})}, {seed});
    const Tensors fused = {Grad(a), Grad(b), x_trains ? Grad(x) : Tensor()};
    for (const Tensor& t : {x, a, b}) {
      if (IsLeaf(t)) SetGrad(t, {});
    }
    const Tensor low = Mul(Linear(x, a, {}, LinearLayout::kOutIn), 0.5);
    Backward(
        {Add(Linear(x, w, {}, LinearLayout::kOutIn), Linear(low, b, {}, LinearLayout::kOutIn))},
        {seed});
    ExpectClose(fused[0], Grad(a), 1e-14, "a", 1);
    ExpectClose(fused[1], Grad(b), 1e-14, "b", 1);
    if (x_trains) ExpectClose(fused[2], Grad(x), 1e-14, "x", 1);
    EXPECT_FALSE(RequiresGrad(w));
  }
}

// Reference: the product of matrices with a row or a column of one.
TEST(MatmulTest, VectorsAreRowsAndColumns) {
  const auto check = [](const char* name, const Shape& a, const Shape& b, const Shape& result) {
    CheckOp({.name = name,
             .op = [](const Tensors& in) { return Tensors{Matmul(in[0], in[1])}; },
             .reference =
                 [result](const Tensors& in) {
                   const Tensor x = in[0].ndim() == 1 ? Unsqueeze(in[0], 0) : in[0];
                   const Tensor y = in[1].ndim() == 1 ? Unsqueeze(in[1], 1) : in[1];
                   return Tensors{Reshape(Matmul(x, y), result)};
                 },
             .inputs = {RandomTensor(a, 1), RandomTensor(b, 2)},
             .sum_length = 3});
  };
  check("row by matrix", {3}, {3, 4}, {4});
  check("matrix by column", {2, 3}, {3}, {2});
  check("row by column", {3}, {3}, {});
  check("row by matrices", {3}, {5, 3, 4}, {5, 4});
  check("matrices by column", {5, 2, 3}, {3}, {5, 2});
  EXPECT_EQ(Matmul(Full({3}, 2.0), Full({3}, 4.0)).Item(), 24);
}

TEST(MatmulTest, PromotesAsAddDoes) {
  const Tensor a = RequireGrad(Full({2, 3}, 2.0, DType::kBFloat16));
  const Tensor b = RequireGrad(Full({3, 2}, 0.5));
  const Tensor c = Matmul(a, b);
  EXPECT_EQ(c.dtype(), DType::kFloat32);
  EXPECT_EQ(c.ToVector<float>(), (std::vector<float>{3, 3, 3, 3}));
  Backward({c}, {Full({2, 2}, 1.0)});
  EXPECT_EQ(Grad(a).ToVector<float>(), std::vector<float>(6, 1));
  EXPECT_EQ(Grad(b).ToVector<float>(), std::vector<float>(6, 4));
  EXPECT_EQ(Matmul(Full({2, 3}, 1.5), Full({3, 1}, 1, DType::kBool)).ToVector<float>(),
            (std::vector<float>{4.5, 4.5}));
}

TEST(MatmulTest, ABiasMayBeStrided) {
  const Tensor x = Tensor::FromVector<float>({1, 2}, {1, 2});
  const Tensor weight = Tensor::FromVector<float>({1, 0, 0, 1, 1, 1}, {3, 2});
  const Tensor columns = RequireGrad(Tensor::FromVector<float>({10, -1, 20, -1, 30, -1}, {3, 2}));
  const Tensor bias = Select(columns, 1, 0);
  const Tensor y = Linear(x, weight, bias, LinearLayout::kOutIn);
  EXPECT_EQ(y.ToVector<float>(), (std::vector<float>{11, 22, 33}));
  Backward({y}, {Full({1, 3}, 2.0)});
  EXPECT_EQ(Grad(columns).ToVector<float>(), (std::vector<float>{2, 0, 2, 0, 2, 0}));
  const auto gelu = [&](const Tensor& b) {
    return LinearGelu(x, weight, b, LinearLayout::kOutIn).value().ToVector<float>();
  };
  EXPECT_EQ(gelu(bias), gelu(Contiguous(bias)));
  const Tensor elsewhere = Zeros({3}, DType::kFloat32, Device::Meta());
  EXPECT_THROW(Linear(x, weight, elsewhere, LinearLayout::kOutIn), Error);
}

TEST(MatmulTest, RefusesWrongShapes) {
  EXPECT_THROW(Matmul(Zeros({2, 3}), Zeros({2, 3})), Error);
  EXPECT_THROW(Matmul(Zeros({2}), Zeros({3, 2})), Error);
  EXPECT_THROW(Matmul(Zeros({2, 3}), Zeros({2})), Error);
  EXPECT_THROW(Matmul(Zeros({}), Zeros({2})), Error);
  EXPECT_THROW(Matmul(Arange(3), Arange(3)), Error);
  EXPECT_THROW(Matmul(Zeros({2, 2, 3}), Zeros({3, 3, 2})), Error);
  EXPECT_THROW(Linear(Zeros({2, 3}), Zeros({4, 2}), Tensor(), LinearLayout::kOutIn), Error);
  EXPECT_THROW(Linear(Zeros({2, 3}), Zeros({4, 3}), Zeros({3}), LinearLayout::kOutIn), Error);
  const auto beside = [](const Shape& x, const Shape& a, const Shape& b) {
    return LowRankLinear(Zeros({2, 3}), Zeros({4, 3}), {}, LinearLayout::kOutIn,
                         {Zeros(x), Zeros(a), Zeros(b)});
  };
  EXPECT_EQ(beside({2, 3}, {1, 3}, {4, 1}).shape(), (Shape{2, 4}));
  EXPECT_THROW(beside({3, 3}, {1, 3}, {4, 1}), Error);
  EXPECT_THROW(beside({2, 3}, {1, 2}, {4, 1}), Error);
  EXPECT_THROW(beside({2, 3}, {2, 3}, {4, 1}), Error);
  EXPECT_THROW(beside({2, 3}, {1, 3}, {5, 1}), Error);
}

}  // namespace
}  // namespace tessera
