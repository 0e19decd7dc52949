// SPDX-License-Identifier: Apache-2.0
#include "ops/reduction/reduction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/allocator.h"
#include "core/thread_pool.h"
#include "ops/elementwise/elementwise.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

// Reduces a [2, 3, 5] tensor over the middle with `f(accumulated, value)`.
template <typename F>
OpFn Middle(double start, F f) {
  return [start, f](const Tensors& in) {
    Tensor y = Full({2, 5}, start, DType::kFloat64);
    for (int64_t i = 0; i < 30; ++i) {
      double& out = y.data<double>()[i / 15 * 5 + i % 5];
      out = f(out, in[0].data<double>()[i]);
    }
    return Tensors{y};
  };
}

TEST(ReductionTest, OverTheMiddle) {
  const Tensor x = RandomTensor({2, 3, 5}, 1);
  CheckOp({.name = "sum",
           .op = [](const Tensors& in) { return Tensors{Sum(in[0], {1})}; },
           .reference = Middle(0, [](double a, double b) { return a + b; }),
           .inputs = {x},
           .sum_length = 3});
  CheckOp({.name = "mean",
           .op = [](const Tensors& in) { return Tensors{Mean(in[0], {-2})}; },
           .reference = Middle(0, [](double a, double b) { return a + b / 3; }),
           .inputs = {x},
           .sum_length = 3});
  CheckOp({.name = "max",
           .op = [](const Tensors& in) { return Tensors{Max(in[0], 1)}; },
           .reference = Middle(-1e9, [](double a, double b) { return std::max(a, b); }),
           .inputs = {x}});
  CheckOp({.name = "min",
           .op = [](const Tensors& in) { return Tensors{Min(in[0], 1)}; },
           .reference = Middle(1e9, [](double a, double b) { return std::min(a, b); }),
           .inputs = {x}});
  CheckOp({.name = "logsumexp",
           .op = [](const Tensors& in) { return Tensors{LogSumExp(in[0], 1)}; },
           .reference =
               [&](const Tensors& in) {
                 Tensors y = Middle(0, [](double a, double b) { return a + std::exp(b); })(in);
                 for (int64_t i = 0; i < 10; ++i) {
                   y[0].data<double>()[i] = std::log(y[0].data<double>()[i]);
                 }
                 return y;
               },
           .inputs = {x},
           .sum_length = 30});
}

TEST(ReductionTest, OverSeveralDimsAllAndNone) {
  const auto total = [](const Tensors& in) {
    double sum = 0;
    for (int64_t i = 0; i < in[0].numel(); ++i) sum += in[0].data<double>()[i];
    return Tensors{Full({}, sum, DType::kFloat64)};
  };
  for (const Shape& shape : {Shape{1}, Shape{17, 3}, Shape{2, 3, 4, 5}, Shape{40000}, Shape{}}) {
    CheckOp({.name = "sum all",
             .op = [](const Tensors& in) { return Tensors{Sum(in[0])}; },
             .reference = total,
             .inputs = {Exp(RandomTensor(shape, 2))},  // positive: no cancellation
             .sum_length = 400,
             .half_precision = shape.numel() < 1000,  // a larger sum leaves float16's range
             .gradcheck_tolerance = 1e-4});
  }
  CheckOp({.name = "sum outer and inner",
           .op =
               [](const Tensors& in) {
                 return Tensors{Sum(in[0], {0, 2}, true)};
               },
           .reference =
               [](const Tensors& in) {
                 Tensor y = Zeros({1, 3, 1}, DType::kFloat64);
                 for (int64_t i = 0; i < 30; ++i) {
                   y.data<double>()[i / 5 % 3] += in[0].data<double>()[i];
                 }
                 return Tensors{y};
               },
           .inputs = {RandomTensor({2, 3, 5}, 3)},
           .sum_length = 40});
  EXPECT_EQ(Sum(Zeros({0, 3})).Item(), 0.0);
  EXPECT_EQ(Sum(Zeros({0, 3}), {0}).ToVector<float>(), (std::vector<float>{0, 0, 0}));
}

TEST(ReductionTest, OverOneDimByItsNumber) {
  const Tensor x = RandomTensor({3, 4}, 1);
  EXPECT_EQ(Sum(x, 1).ToVector<double>(), Sum(x, {1}).ToVector<double>());
  EXPECT_EQ(Mean(x, -2, true).shape(), (Shape{1, 4}));
  EXPECT_EQ(Mean(x, 0).ToVector<double>(), Mean(x, {0}).ToVector<double>());
  EXPECT_EQ(Sum(x, {}, true).shape(), (Shape{1, 1})) << "no dims are all";
}

TEST(ReductionTest, SumsOfIntegersAndMasksAreInt64) {
  for (const Device& device : TestDevices()) {
    const Tensor bytes = CopyTo(Full({2, 3}, 200, DType::kUInt8), device);
    EXPECT_EQ(Sum(bytes, 1).ToVector<int64_t>(), (std::vector<int64_t>{600, 600}));
    EXPECT_EQ(Sum(bytes).dtype(), DType::kInt64);
    EXPECT_EQ(Sum(CastCopy(bytes, DType::kBool)).Item(), 6);
    EXPECT_EQ(Sum(CastCopy(bytes, DType::kInt32)).Item(), 1200);
  }
  EXPECT_THROW(Mean(Arange(3)), Error);
}

// Reference: sums over a row in plain loops.
TEST(ReductionTest, Variance) {
  for (const double correction : {0.0, 1.0}) {
    CheckOp({.name = "var",
             .op =
                 [=](const Tensors& in) {
                   return Tensors{Var(in[0], {-1}, {.correction = correction})};
                 },
             .reference =
                 [=](const Tensors& in) {
                   const Tensor y = Empty({3}, DType::kFloat64);
                   for (int64_t r = 0; r < 3; ++r) {
                     const double* row = in[0].data<double>() + 7 * r;
                     double mean = 0;
                     for (int64_t i = 0; i < 7; ++i) mean += row[i] / 7;
                     double squares = 0;
                     for (int64_t i = 0; i < 7; ++i) squares += (row[i] - mean) * (row[i] - mean);
                     y.data<double>()[r] = squares / (7 - correction);
                   }
                   return Tensors{y};
                 },
             .inputs = {RandomTensor({3, 7}, 1)},
             .sum_length = 7});
  }
  EXPECT_EQ(Var(Zeros({2, 3, 4}), {0, 2}, {.keep_dims = true}).shape(), (Shape{1, 3, 1}));
  // The mean square less the squared mean would have no digits left here.
  EXPECT_NEAR(Var(Add(Tensor::FromVector<float>({-1, 0, 1}, {3}), 10000.0)).Item(), 1, 1e-6);
  EXPECT_THROW(Var(Arange(3)), Error);
}

TEST(ReductionTest, RefusesADimGivenTwice) {
  const Tensor x = Zeros({2, 3});
  EXPECT_THROW(Sum(x, {0, 0}), Error);
  EXPECT_THROW(Sum(x, {0, -2}), Error);
  EXPECT_THROW(Sum(x, {1, 0, -1}, true), Error);
  EXPECT_THROW(Mean(x, {1, 1}), Error);
  EXPECT_THROW(Mean(x, {-1, 1}, true), Error);
  EXPECT_THROW(Sum(x, {2}), Error);
  EXPECT_EQ(Sum(x, {1, 0}).shape(), Shape());
}

TEST(ReductionTest, BroadcastToAndSumTo) {
  CheckOp({.name = "broadcast_to",
           .op =
               [](const Tensors& in) {
                 return Tensors{BroadcastTo(in[0], {4, 2, 3})};
               },
           .reference =
               [](const Tensors& in) {
                 Tensor y = Empty({4, 2, 3}, DType::kFloat64);
                 for (int64_t i = 0; i < 24; ++i) {
                   y.data<double>()[i] = in[0].data<double>()[i / 3 % 2];
                 }
                 return Tensors{y};
               },
           .inputs = {RandomTensor({2, 1}, 4)},
           .sum_length = 12});
  CheckOp({.name = "sum_to",
           .op =
               [](const Tensors& in) {
                 return Tensors{SumTo(in[0], {2, 1})};
               },
           .reference =
               [](const Tensors& in) {
                 Tensor y = Zeros({2, 1}, DType::kFloat64);
                 for (int64_t i = 0; i < 24; ++i) {
                   y.data<double>()[i / 3 % 2] += in[0].data<double>()[i];
                 }
                 return Tensors{y};
               },
           .inputs = {RandomTensor({4, 2, 3}, 5)},
           .sum_length = 12});
}

TEST(ReductionTest, ExtremesTakeTheFirstAndKeepNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::FromVector<float>({1, 3, 3, nan, 2, nan}, {2, 3});
  EXPECT_EQ(ArgMax(x, 1).ToVector<int64_t>(), (std::vector<int64_t>{1, 0}));
  const Tensor low = Tensor::FromVector<float>({1, 0, 0, 2, -1, -3}, {2, 3});
  EXPECT_EQ(ArgMin(low, 1).ToVector<int64_t>(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(ArgMin(low, 0, true).shape(), (Shape{1, 3}));
  EXPECT_EQ(ArgMin(x, 1).ToVector<int64_t>(), (std::vector<int64_t>{0, 0}));
  EXPECT_TRUE(std::isnan(Max(x, 1).ToVector<float>()[1]));
  EXPECT_THROW(Max(Zeros({2, 0}), 1), Error);
  EXPECT_THROW(Sum(x, {2}), Error);
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(LogSumExp(Full({3}, -inf), 0).Item(), -inf);
  EXPECT_EQ(LogSumExp(Full({2}, 1000.0), 0).Item(), 1000.0f + std::log(2.0f));
}

// Nothing is rounded to half precision, nor overflows there, before all of it is summed, and a mean
// divided.
TEST(ReductionTest, HalfPrecisionIsRoundedOnce) {
  for (const Device& device : TestDevices()) {
    EXPECT_EQ(Mean(Full({7}, 60000.0, DType::kFloat16, device)).Item(), 60000);
    const Tensor signs = Cat({Full({1, 3, 1000}, 100.0, DType::kFloat16, device),
                              Full({1, 3, 1000}, -100.0, DType::kFloat16, device)},
                             0);
    const std::vector<float> zeros(3);
    EXPECT_EQ(Sum(signs, {0, 2}).ToVector<float>(), zeros);
    EXPECT_EQ(Mean(signs, {0, 2}).ToVector<float>(), zeros);
    EXPECT_EQ(SumTo(signs, {3, 1}).ToVector<float>(), zeros);
    // Of 8 bits: 257 would become 256, and 261 260. 518 is half way between 516 and 520.
    const Tensor rows = CopyTo(
        CastCopy(Tensor::FromVector<float>({256, 1, 0, 256, 1, 4}, {2, 1, 3}), DType::kBFloat16),
        device);
    EXPECT_EQ(Sum(rows, {0, 2}).Item(), 520);
    EXPECT_EQ(Sum(rows, {0, 2}, true).shape(), (Shape{1, 1, 1}));
    // Strided, with kept dims on both sides and dims without elements.
    const Tensor apart = Permute(Full({3, 5, 2, 4}, 0.5, DType::kBFloat16, device), {3, 1, 0, 2});
    EXPECT_EQ(Sum(apart, {0, 2}, true).shape(), (Shape{1, 5, 1, 2}));
    EXPECT_EQ(Sum(apart, {0, 2}).ToVector<float>(), std::vector<float>(10, 6.0f));
    EXPECT_EQ(Sum(Zeros({0, 2, 3}, DType::kBFloat16, device), {0, 2}).ToVector<float>(),
              std::vector<float>(2));
    // 1 + 1/256 + 1/256 over 3, rounded to 8 bits; the sum alone is 1 + 1/128.
    const Tensor three = CopyTo(
        CastCopy(Tensor::FromVector<float>({1, 0.00390625, 0.00390625}, {3}), DType::kBFloat16),
        device);
    EXPECT_EQ(Mean(three).Item(), static_cast<float>(BFloat16(1.0078125f / 3)));
  }
}

TEST(ReductionTest, BitsDoNotDependOnTheNumberOfThreads) {
  const Tensor x = CastCopy(RandomTensor({700, 300}, 6), DType::kFloat32);
  SetNumThreads(1);
  const std::vector<float> columns = Sum(x, {0}).ToVector<float>();
  const double all = Sum(x).Item();
  SetNumThreads(3);
  EXPECT_EQ(Sum(x, {0}).ToVector<float>(), columns);
  EXPECT_EQ(Sum(x).Item(), all);
  SetNumThreads(AvailableCores());
}

TEST(ReductionTest, LongSums) {
  // Cut into chunks on a GPU: a vector, and a matrix over its rows.
  const auto sum_over = [](int64_t outer, int64_t count, int64_t inner) {
    return [=](const Tensors& in) {
      Tensor y = Zeros({outer, inner}, DType::kFloat64);
      for (int64_t i = 0; i < outer * count * inner; ++i) {
        y.data<double>()[i / (count * inner) * inner + i % inner] += in[0].data<double>()[i];
      }
      return Tensors{y};
    };
  };
  CheckOp({.name = "sum of long vectors",
           .op = [](const Tensors& in) { return Tensors{Sum(in[0], {1}, true)}; },
           .reference = sum_over(2, 40001, 1),
           .inputs = {RandomTensor({2, 40001}, 1)},
           .sum_length = 40001,
           .check_gradient = false});
  CheckOp({.name = "sum of long vectors of whole groups",
           .op = [](const Tensors& in) { return Tensors{Sum(in[0], {1}, true)}; },
           .reference = sum_over(3, 33000, 1),
           .inputs = {RandomTensor({3, 33000}, 1)},
           .sum_length = 33000,
           .check_gradient = false});
  CheckOp({.name = "sum of many rows",
           .op = [](const Tensors& in) { return Tensors{Sum(in[0], {1})}; },
           .reference = sum_over(2, 5001, 12),
           .inputs = {RandomTensor({2, 5001, 12}, 1)},
           .sum_length = 5001,
           .check_gradient = false});
}

// More chunks than a block has threads; the bits are those of the shape, wherever the vector
// begins.
TEST(ReductionTest, SumOfAVeryLongVector) {
  constexpr int64_t kCount = 3'300'003;
  const Tensor x = Empty({kCount + 1}, DType::kFloat32);
  for (int64_t i = 0; i <= kCount; ++i) {
    x.data<float>()[i] = static_cast<float>(i * 7919 % 1009) / 512;
  }
  for (const Device& device : TestDevices()) {
    for (const int64_t count : {int64_t{5}, int64_t{5003}, kCount}) {
      const Tensor begins_late = Slice(CopyTo(x, device), 0, 1, count);
      const Tensor sum = Sum(begins_late);
      EXPECT_EQ(sum.Item(), Sum(CopyTo(CopyTo(begins_late, Device::Cpu()), device)).Item());
      double expected = 0;
      for (int64_t i = 1; i <= count; ++i) expected += x.data<float>()[i];
      EXPECT_NEAR(sum.Item(), expected, 1e-6 * expected) << device;
    }
  }
}

TEST(ReductionTest, MetaCudaCountsTheWorkspace) {
  const Device meta = Device::Meta(DeviceType::kCuda);
  Allocator& allocator = Allocator::For(meta);
  const auto peak = [&](const Shape& shape, DType dtype) {
    const Tensor x = Empty(shape, dtype, meta);
    allocator.ResetPeak();
    const int64_t before = allocator.stats().current_bytes;
    Sum(x, {0}, true);
    return allocator.stats().peak_bytes - before;
  };
  // The result, 64 bytes or 8 * 12, and a sum per chunk: three of a vector of 40000, in float64; of
  // 5000 rows 63 chunks of 80 rows, in float32 or float64.
  EXPECT_EQ(peak({1000}, DType::kBFloat16), 64);
  EXPECT_EQ(peak({40000}, DType::kBFloat16), 64 + 64);
  EXPECT_EQ(peak({5000, 12}, DType::kBFloat16), 64 + 3072);
  EXPECT_EQ(peak({5000, 12}, DType::kFloat64), 128 + 6144);
}

}  // namespace
}  // namespace tessera
