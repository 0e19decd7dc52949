// SPDX-License-Identifier: Apache-2.0
#include "ops/random/random.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/thread_pool.h"
#include "ops/testing/op_check.h"

namespace tessera {
namespace {

const RandomKey kKey = RandomKey::FromSeed(5).With("noise");

TEST(RandomTest, NumbersAreThoseOfTheStream) {
  for (const Device& device : TestDevices()) {
    for (const DType dtype :
         {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16}) {
      const RandomOptions options{.dtype = dtype, .device = device};
      const Tensor uniform = Rand({3, 7}, kKey, options);
      const Tensor normal = Randn({3, 7}, kKey, options);
      EXPECT_EQ(uniform.device(), device);
      EXPECT_EQ(normal.dtype(), dtype);
      for (size_t i = 0; i < 21; ++i) {
        const auto rounded = [&](double value) { return CastCopy(Full({}, value), dtype).Item(); };
        EXPECT_EQ(uniform.ToVector<double>()[i], rounded(UniformFloat(kKey, i)));
        EXPECT_EQ(normal.ToVector<double>()[i], rounded(NormalDouble(kKey, i)));
      }
    }
  }
}

TEST(RandomTest, MomentsOfManyNumbers) {
  const auto moments = [](const Tensor& t) {
    double sum = 0;
    double squares = 0;
    for (const double x : t.ToVector<double>()) {
      sum += x;
      squares += x * x;
    }
    const auto n = static_cast<double>(t.numel());
    return std::pair(sum / n, squares / n);
  };
  const auto [mean, square] = moments(Rand({100000}, kKey));
  EXPECT_NEAR(mean, 0.5, 0.005);
  EXPECT_NEAR(square, 1.0 / 3, 0.005);
  const auto [normal_mean, variance] = moments(Randn({100000}, kKey));
  EXPECT_NEAR(normal_mean, 0, 0.015);
  EXPECT_NEAR(variance, 1, 0.02);
}

TEST(RandomTest, ABoxHasTheWholeTensorsNumbers) {
  const std::vector<float> whole = Randn({5, 6}, kKey).ToVector<float>();
  const std::vector<float> part =
      Randn({2, 3}, kKey, {.global_shape = {5, 6}, .begin = {3, 1}}).ToVector<float>();
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(part[i], whole[(3 + i / 3) * 6 + 1 + i % 3]);
}

// Parts whose elements are adjacent in groups of four, and those whose are not, on each device.
TEST(RandomTest, EveryDeviceHasTheSameBits) {
  struct Case {
    Shape shape;
    RandomOptions options;
  };
  for (const Case& c : {Case{{5000}, {}}, Case{{37, 5}, {}},
                        Case{{8, 8}, {.global_shape = {16, 12}, .begin = {3, 4}}},
                        Case{{7, 3}, {.global_shape = {16, 12}, .begin = {3, 5}}},
                        Case{{3, 2, 4}, {.global_shape = {3, 4, 4}, .begin = {0, 1, 0}}}}) {
    const std::vector<float> uniform = Rand(c.shape, kKey, c.options).ToVector<float>();
    const std::vector<float> normal = Randn(c.shape, kKey, c.options).ToVector<float>();
    for (const Device& device : TestDevices()) {
      RandomOptions there = c.options;
      there.device = device;
      EXPECT_EQ(Rand(c.shape, kKey, there).ToVector<float>(), uniform);
      EXPECT_EQ(Randn(c.shape, kKey, there).ToVector<float>(), normal);
      there.begin = {100};
      EXPECT_THROW(Rand(c.shape, kKey, there), Error);
    }
  }
}

TEST(RandomTest, BitsDoNotDependOnTheNumberOfThreads) {
  SetNumThreads(1);
  const std::vector<float> one = Randn({20000}, kKey).ToVector<float>();
  SetNumThreads(3);
  EXPECT_EQ(Randn({20000}, kKey).ToVector<float>(), one);
  SetNumThreads(AvailableCores());
}

TEST(RandomTest, MetaAndRefusals) {
  const Tensor meta = Rand({2, 3}, kKey, {.dtype = DType::kFloat16, .device = Device::Meta()});
  EXPECT_EQ(meta.shape(), (Shape{2, 3}));
  EXPECT_EQ(meta.dtype(), DType::kFloat16);
  EXPECT_EQ(Rand({}, kKey).numel(), 1);
  EXPECT_EQ(Rand({0, 3}, kKey).numel(), 0);
  EXPECT_THROW(Rand({2}, kKey, {.dtype = DType::kInt64}), Error);
  EXPECT_THROW(Rand({2}, kKey, {.global_shape = {3}, .begin = {2}}), Error);
  EXPECT_THROW(Rand({2}, kKey, {.global_shape = {3, 2}}), Error);
  const uint64_t words[2] = {0, 0};
  RandomKey stored = kKey;
  stored.stored = words;
  EXPECT_THROW(Rand({2}, stored), Error);
}

}  // namespace
}  // namespace tessera
