// SPDX-License-Identifier: Apache-2.0
#include "ops/sampling/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "ops/testing/op_check.h"

namespace tessera {
namespace {

const RandomKey kKey = RandomKey::FromSeed(7);

// Counts of n draws of share p lie within five deviations of n p.
void ExpectShare(int64_t count, int64_t n, double p) {
  const auto all = static_cast<double>(n);
  EXPECT_NEAR(static_cast<double>(count), all * p, 5 * std::sqrt(all * p * (1 - p)) + 1e-9);
}

TEST(SamplingTest, RandIntIsUniform) {
  constexpr int64_t kDraws = 60000;
  for (const Device& device : TestDevices()) {
    const Tensor x = RandInt(-2, 4, {kDraws}, kKey, device);
    EXPECT_EQ(x.dtype(), DType::kInt64);
    std::vector<int64_t> counts(6);
    for (const int64_t value : x.ToVector<int64_t>()) {
      ASSERT_TRUE(value >= -2 && value < 4) << value;
      ++counts[static_cast<size_t>(value + 2)];
    }
    for (const int64_t count : counts) ExpectShare(count, kDraws, 1.0 / 6);
    EXPECT_EQ(x.ToVector<int64_t>(), RandInt(-2, 4, {kDraws}, kKey).ToVector<int64_t>());
    EXPECT_NE(x.ToVector<int64_t>(), RandInt(-2, 4, {kDraws}, kKey.With("b")).ToVector<int64_t>());
  }
}

TEST(SamplingTest, RandIntOfLargeRanges) {
  const int64_t high = int64_t{1} << 48;
  std::set<int64_t> last_bits;
  for (const int64_t value : RandInt(0, high, {1000}, kKey).ToVector<int64_t>()) {
    ASSERT_TRUE(value >= 0 && value < high);
    last_bits.insert(value % 16);
  }
  EXPECT_EQ(last_bits.size(), 16u);
  const int64_t far = std::numeric_limits<int64_t>::max() - 10;
  EXPECT_EQ(RandInt(far, far + 1, {1}, kKey).ToVector<int64_t>()[0], far);
  EXPECT_THROW(RandInt(0, high + 1, {1}, kKey), Error);
  EXPECT_THROW(RandInt(3, 3, {1}, kKey), Error);
  EXPECT_THROW(RandInt(4, 3, {1}, kKey), Error);
}

TEST(SamplingTest, MultinomialWithReplacementFollowsTheWeights) {
  constexpr int64_t kDraws = 20000;
  for (const Device& device : TestDevices()) {
    const Tensor weights =
        CopyTo(Tensor::FromVector<float>({1, 0, 3, 4, 0.5, 0.5, 0, 0}, {2, 4}), device);
    const Tensor x = Multinomial(weights, kDraws, kKey, {.replacement = true});
    EXPECT_EQ(x.shape(), (Shape{2, kDraws}));
    std::vector<int64_t> counts(8);
    const std::vector<int64_t> drawn = x.ToVector<int64_t>();
    for (size_t i = 0; i < drawn.size(); ++i) {
      ++counts[i / kDraws * 4 + static_cast<size_t>(drawn[i])];
    }
    const std::vector<double> shares = {0.125, 0, 0.375, 0.5, 0.5, 0.5, 0, 0};
    for (size_t i = 0; i < 8; ++i) ExpectShare(counts[i], kDraws, shares[i]);
  }
}

// The second of two draws is c with probability p_a p_c / (1 - p_a) + p_b p_c / (1 - p_b).
TEST(SamplingTest, MultinomialWithoutReplacement) {
  constexpr int64_t kRows = 20000;
  std::vector<float> weights;
  for (int64_t i = 0; i < kRows; ++i) weights.insert(weights.end(), {1, 2, 0, 5});
  const Tensor x = Multinomial(Tensor::FromVector<float>(weights, {kRows, 4}), 2, kKey);
  const std::vector<int64_t> drawn = x.ToVector<int64_t>();
  std::vector<int64_t> first(4);
  std::vector<int64_t> second(4);
  for (size_t i = 0; i < drawn.size(); i += 2) {
    ASSERT_NE(drawn[i], drawn[i + 1]);
    ++first[static_cast<size_t>(drawn[i])];
    ++second[static_cast<size_t>(drawn[i + 1])];
  }
  const double a = 0.125;
  const double b = 0.25;
  const double c = 0.625;
  ExpectShare(first[0], kRows, a);
  ExpectShare(first[1], kRows, b);
  ExpectShare(first[2], kRows, 0);
  ExpectShare(first[3], kRows, c);
  ExpectShare(second[3], kRows, a * c / (1 - a) + b * c / (1 - b));
}

TEST(SamplingTest, MultinomialRefusesWhatIsNoDistribution) {
  const auto draw = [](const std::vector<float>& weights, int64_t samples, bool replacement) {
    const Tensor w = Tensor::FromVector<float>(weights, {static_cast<int64_t>(weights.size())});
    return Multinomial(w, samples, kKey, {.replacement = replacement});
  };
  EXPECT_EQ(draw({0, 1, 0}, 1, false).ToVector<int64_t>(), (std::vector<int64_t>{1}));
  EXPECT_THROW(draw({0, 0}, 1, true), Error);
  EXPECT_THROW(draw({0, 1}, 2, false), Error);
  EXPECT_THROW(draw({1, 1}, 3, false), Error);
  EXPECT_THROW(draw({1, -1}, 1, true), Error);
  EXPECT_THROW(draw({1, NAN}, 1, true), Error);
  EXPECT_THROW(Multinomial(Arange(3), 1, kKey), Error);
}

TEST(SamplingTest, OnMeta) {
  const Tensor weights = Empty({2, 5}, DType::kFloat32, Device::Meta());
  EXPECT_EQ(Multinomial(weights, 3, kKey).shape(), (Shape{2, 3}));
  EXPECT_EQ(RandInt(0, 3, {4}, kKey, Device::Meta()).shape(), (Shape{4}));
}

}  // namespace
}  // namespace tessera
