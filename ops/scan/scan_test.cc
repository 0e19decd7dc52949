// SPDX-License-Identifier: Apache-2.0
#include "ops/scan/scan.h"

#include <gtest/gtest.h>

#include "core/thread_pool.h"
#include "ops/testing/op_check.h"

namespace tessera {
namespace {

// Running sums of a [outer, count, inner] tensor over the middle.
OpFn Middle(int64_t count, int64_t inner) {
  return [=](const Tensors& in) {
    Tensor y = EmptyLike(in[0]);
    for (int64_t i = 0; i < y.numel(); ++i) {
      const bool first = i / inner % count == 0;
      y.data<double>()[i] = in[0].data<double>()[i] + (first ? 0.0 : y.data<double>()[i - inner]);
    }
    return Tensors{y};
  };
}

TEST(ScanTest, CumSum) {
  struct Case {
    Shape shape;
    int dim;
  };
  for (const Case& c : {Case{{7}, 0}, Case{{3, 5}, -1}, Case{{4, 3, 67}, 1}, Case{{5, 1}, 0},
                        Case{{2, 3, 2, 3}, -3}, Case{{2, 0, 3}, 1}, Case{{1, 1}, 1}}) {
    int64_t inner = 1;
    const int dim = c.shape.Normalize(c.dim);
    for (int d = dim + 1; d < c.shape.ndim(); ++d) inner *= c.shape[d];
    CheckOp({.name = "cumsum",
             .op = [&](const Tensors& in) { return Tensors{CumSum(in[0], c.dim)}; },
             .reference = Middle(c.shape[dim], inner),
             .inputs = {RandomTensor(c.shape, 1)},
             .sum_length = 9});
  }
}

// More than the GPU takes at once.
TEST(ScanTest, LongRows) {
  CheckOp({.name = "cumsum of long rows",
           .op = [](const Tensors& in) { return Tensors{CumSum(in[0], 1)}; },
           .reference = Middle(1031, 1),
           .inputs = {RandomTensor({2, 1031}, 2)},
           .sum_length = 1031,
           .check_gradient = false});
}

TEST(ScanTest, IntegersAndRefusals) {
  const Tensor x = Tensor::FromVector<int64_t>({3, -1, 2, 10, 20, 30}, {2, 3});
  for (const Device& device : TestDevices()) {
    const Tensor on_device = CopyTo(x, device);
    EXPECT_EQ(CumSum(on_device, 1).ToVector<int64_t>(),
              (std::vector<int64_t>{3, 2, 4, 10, 30, 60}));
    EXPECT_EQ(CumSum(on_device, 0).ToVector<int64_t>(),
              (std::vector<int64_t>{3, -1, 2, 13, 19, 32}));
  }
  EXPECT_THROW(CumSum(x, 2), Error);
  for (const DType dtype : {DType::kInt32, DType::kUInt8, DType::kBool}) {
    const Tensor sums = CumSum(Full({300}, 1, dtype), 0);
    EXPECT_EQ(sums.dtype(), DType::kInt64);
    EXPECT_EQ(sums.ToVector<int64_t>()[299], 300);
  }
}

// A sum in float32 would stop at 2^24.
TEST(ScanTest, ManyTermsKeepTheirPrecision) {
  const Tensor ones = Full({(1 << 24) + 8}, 1.0);
  const Tensor sums = CumSum(ones, 0);
  EXPECT_EQ(sums.data<float>()[sums.numel() - 1], static_cast<float>((1 << 24) + 8));
}

TEST(ScanTest, BitsDoNotDependOnTheNumberOfThreads) {
  const Tensor x = CastCopy(RandomTensor({70, 300, 3}, 6), DType::kFloat32);
  SetNumThreads(1);
  const std::vector<float> one = CumSum(x, 1).ToVector<float>();
  SetNumThreads(3);
  EXPECT_EQ(CumSum(x, 1).ToVector<float>(), one);
  SetNumThreads(AvailableCores());
}

}  // namespace
}  // namespace tessera
