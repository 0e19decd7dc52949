// SPDX-License-Identifier: Apache-2.0
// The order of samples and the loader that fetches ahead.
#include "data/dataset/sampler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <set>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "data/dataset/keyed_permutation.h"
#include "data/dataset/prefetching_loader.h"

namespace tessera::data {
namespace {

TEST(KeyedPermutationTest, IsABijection) {
  std::vector<int64_t> sizes = {1000, 1023, 1024, 1025, 4096, 4097, 65537, 100003};
  for (int64_t n = 1; n <= 130; ++n) sizes.push_back(n);
  for (const int64_t n : sizes) {
    for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
      const KeyedPermutation order(n, seed, /*epoch=*/seed % 3);
      std::vector<bool> seen(static_cast<size_t>(n), false);
      for (int64_t i = 0; i < n; ++i) {
        const int64_t x = order(i);
        ASSERT_TRUE(x >= 0 && x < n && !seen[x]) << n << " " << i;
        seen[x] = true;
      }
    }
  }
}

TEST(KeyedPermutationTest, HugeRanges) {
  for (const int64_t n : {int64_t{1} << 40, (int64_t{1} << 40) + 1, INT64_MAX}) {
    const KeyedPermutation order(n, 5, 6);
    std::set<int64_t> seen;
    for (int64_t i = 0; i < 1000; ++i) {
      const int64_t x = order(n - 1 - i);
      EXPECT_TRUE(x >= 0 && x < n);
      seen.insert(x);
    }
    EXPECT_EQ(seen.size(), 1000u);
  }
}

TEST(KeyedPermutationTest, RefusesWhatIsOutside) {
  EXPECT_THROW(KeyedPermutation(0, 1, 1), Error);
  EXPECT_THROW(KeyedPermutation(-3, 1, 1), Error);
  EXPECT_THROW(KeyedPermutation(5, 1, 1)(5), Error);
  EXPECT_THROW(KeyedPermutation(5, 1, 1)(-1), Error);
}

TEST(KeyedPermutationTest, ShufflesAndDependsOnTheKey) {
  constexpr int64_t kN = 1000;
  const KeyedPermutation a(kN, 1, 0);
  const KeyedPermutation b(kN, 1, 1);
  const KeyedPermutation c(kN, 2, 0);
  int fixed = 0;
  int ascending = 0;
  int same_ab = 0;
  int same_ac = 0;
  for (int64_t i = 0; i < kN; ++i) {
    fixed += a(i) == i;
    same_ab += a(i) == b(i);
    same_ac += a(i) == c(i);
    ascending += i > 0 && a(i) > a(i - 1);
  }
  // One coincidence is expected of each; 15 are as good as impossible.
  EXPECT_LT(fixed, 15);
  EXPECT_LT(same_ab, 15);
  EXPECT_LT(same_ac, 15);
  EXPECT_NEAR(ascending, 500, 60);
}

// Every position goes to every place equally often over many keys (chi-squared, 5 sigma).
TEST(KeyedPermutationTest, IsUniformOverKeys) {
  for (const int64_t n : {2, 3, 5, 7, 10, 16}) {
    constexpr int kKeys = 20000;
    std::vector<int> counts(static_cast<size_t>(n * n), 0);
    for (uint64_t seed = 0; seed < kKeys; ++seed) {
      const KeyedPermutation order(n, seed, 0);
      for (int64_t i = 0; i < n; ++i) ++counts[i * n + order(i)];
    }
    const double expected = static_cast<double>(kKeys) / static_cast<double>(n);
    double chi2 = 0;
    for (const int count : counts) chi2 += (count - expected) * (count - expected) / expected;
    const auto freedom = static_cast<double>((n - 1) * (n - 1));
    EXPECT_LT(chi2, freedom + 5 * std::sqrt(2 * freedom) + 5) << n;
  }
}

// The order is part of every checkpoint's meaning and must never change.
TEST(KeyedPermutationTest, IsFrozen) {
  const KeyedPermutation order(10, 42, 3);
  std::vector<int64_t> got;
  for (int64_t i = 0; i < 10; ++i) got.push_back(order(i));
  EXPECT_EQ(got, (std::vector<int64_t>{0, 6, 4, 2, 9, 3, 7, 1, 8, 5}));
}

std::vector<int64_t> Indices(const Sampler& sampler, const BatchPlace& place) {
  std::vector<int64_t> indices;
  for (const Sample& sample : sampler.Rows(place)) {
    EXPECT_EQ(sample.index, sampler.SampleAt(sample.position));
    indices.push_back(sample.index);
  }
  return indices;
}

// The samples of a whole step, in line.
std::vector<int64_t> Step(const Sampler& sampler, int64_t step, int64_t world) {
  std::vector<int64_t> all;
  for (int64_t rank = 0; rank < world; ++rank) {
    for (int64_t m = 0; m < sampler.options().micro_batches; ++m) {
      const auto rows =
          Indices(sampler, {.step = step, .micro_batch = m, .rank = rank, .world = world});
      all.insert(all.end(), rows.begin(), rows.end());
    }
  }
  return all;
}

TEST(SamplerTest, MicroBatchesOfARankAreNeighbours) {
  const Sampler sampler({.num_samples = 100, .batch_size = 2, .micro_batches = 3});
  const auto rows = sampler.Rows({.step = 2, .micro_batch = 1, .rank = 3, .world = 4});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].position, 2 * 24 + (3 * 3 + 1) * 2);
  EXPECT_EQ(rows[1].position, rows[0].position + 1);
}

TEST(SamplerTest, WorldSizeDoesNotChangeTheOrder) {
  // A global batch of 24, cut in different ways.
  const Sampler one({.num_samples = 100, .batch_size = 24, .seed = 7});
  const Sampler four({.num_samples = 100, .batch_size = 6, .seed = 7});
  const Sampler many({.num_samples = 100, .batch_size = 2, .micro_batches = 4, .seed = 7});
  for (const int64_t step : {0, 1, 4, 5, 1000000}) {
    EXPECT_EQ(Step(one, step, 1), Step(four, step, 4));
    EXPECT_EQ(Step(one, step, 1), Step(many, step, 3));
  }
  EXPECT_EQ(one.GlobalBatch(1), 24);
  EXPECT_EQ(many.GlobalBatch(3), 24);
}

TEST(SamplerTest, EpochsRunOnAndAreShuffledAnew) {
  const Sampler sampler({.num_samples = 10, .batch_size = 4, .seed = 1});
  std::vector<int64_t> line;
  for (int64_t step = 0; step < 5; ++step) {
    const auto rows = Step(sampler, step, 1);
    line.insert(line.end(), rows.begin(), rows.end());
  }
  const std::vector<int64_t> first(line.begin(), line.begin() + 10);
  const std::vector<int64_t> second(line.begin() + 10, line.end());
  EXPECT_EQ(std::set<int64_t>(first.begin(), first.end()).size(), 10u);
  EXPECT_EQ(std::set<int64_t>(second.begin(), second.end()).size(), 10u);
  EXPECT_NE(first, second);
  EXPECT_EQ(line[7], sampler.SampleAt(7));
}

TEST(SamplerTest, SamplesOfLikeLengthsAreNeighbours) {
  const auto length = [](int64_t index) { return index * index % 23; };
  const auto make = [&](int64_t batch, int64_t micro_batches, int64_t group) {
    return Sampler({.num_samples = 50,
                    .batch_size = batch,
                    .micro_batches = micro_batches,
                    .seed = 3,
                    .length_of = length,
                    .length_group = group});
  };
  const Sampler plain({.num_samples = 50, .batch_size = 4, .seed = 3});
  const Sampler grouped = make(4, 1, 20);
  // Groups of 20, 20 and the 10 that the epoch has left, of two epochs.
  std::vector<int64_t> line, unsorted;
  for (int64_t step = 0; step < 25; ++step) {
    for (auto [sampler, all] : {std::pair(&grouped, &line), {&plain, &unsorted}}) {
      const auto rows = Step(*sampler, step, 1);
      all->insert(all->end(), rows.begin(), rows.end());
    }
  }
  int64_t begin = 0;
  for (const int64_t size : {20, 20, 10, 20, 20, 10}) {
    const std::vector<int64_t> part(line.begin() + begin, line.begin() + begin + size);
    std::multiset<int64_t> same(unsorted.begin() + begin, unsorted.begin() + begin + size);
    EXPECT_EQ(std::multiset<int64_t>(part.begin(), part.end()), same);
    for (int64_t i = 1; i < size; ++i) {
      EXPECT_GE(length(part[static_cast<size_t>(i - 1)]), length(part[static_cast<size_t>(i)]));
    }
    begin += size;
  }
  EXPECT_NE(line, unsorted);
  // However a step is cut.
  const Sampler cut = make(1, 2, 20);
  for (int64_t step = 0; step < 25; ++step) EXPECT_EQ(Step(grouped, step, 1), Step(cut, step, 2));
  EXPECT_THROW(make(1, 1, 0), Error);
}

TEST(SamplerTest, InOrderAndOnceForEvaluation) {
  const Sampler sampler({.num_samples = 7, .batch_size = 2, .shuffle = false, .end_position = 7});
  using V = std::vector<int64_t>;
  EXPECT_EQ(sampler.StepsFor(7, /*world=*/2), 2);
  EXPECT_EQ(sampler.StepsFor(8, 2), 2);
  EXPECT_EQ(sampler.StepsFor(0, 2), 0);
  EXPECT_EQ(Indices(sampler, {.step = 0, .rank = 0, .world = 2}), (V{0, 1}));
  EXPECT_EQ(Indices(sampler, {.step = 0, .rank = 1, .world = 2}), (V{2, 3}));
  EXPECT_EQ(Indices(sampler, {.step = 1, .rank = 1, .world = 2}), (V{6}));
  EXPECT_EQ(Indices(sampler, {.step = 2, .rank = 0, .world = 2}), V{});
  const Sampler around({.num_samples = 3, .batch_size = 5, .shuffle = false});
  EXPECT_EQ(Indices(around, {}), (V{0, 1, 2, 0, 1}));
}

// Each epoch draws so many of all samples, others each time.
TEST(SamplerTest, AnEpochMayDrawFewerThanAllSamples) {
  const Sampler sampler({.num_samples = 11, .batch_size = 4, .seed = 1, .samples_per_epoch = 8});
  std::set<int64_t> seen;
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    std::vector<int64_t> drawn = Step(sampler, 2 * epoch, 1);
    const std::vector<int64_t> second = Step(sampler, 2 * epoch + 1, 1);
    drawn.insert(drawn.end(), second.begin(), second.end());
    const std::set<int64_t> different(drawn.begin(), drawn.end());
    EXPECT_EQ(different.size(), 8u) << epoch;
    seen.insert(different.begin(), different.end());
  }
  EXPECT_EQ(seen.size(), 11u);
  EXPECT_THROW(Sampler({.num_samples = 7, .samples_per_epoch = 8}), Error);
}

// No step crosses from one epoch into the next: an epoch's last step has the remaining samples.
TEST(SamplerTest, StepsMayEndWithEpochs) {
  using V = std::vector<int64_t>;
  SamplerOptions options = {.num_samples = 7,
                            .batch_size = 2,
                            .micro_batches = 2,
                            .shuffle = false,
                            .steps_end_with_epochs = true};
  const Sampler sampler(options);
  EXPECT_EQ(Step(sampler, 0, 1), (V{0, 1, 2, 3}));
  EXPECT_EQ(Step(sampler, 1, 1), (V{4, 5, 6}));
  EXPECT_EQ(Step(sampler, 2, 1), (V{0, 1, 2, 3}));
  EXPECT_EQ(Step(sampler, 3, 1), (V{4, 5, 6}));
  EXPECT_TRUE(sampler.EndsEpoch(2, 1));
  EXPECT_FALSE(sampler.EndsEpoch(3, 1));
  EXPECT_EQ(sampler.After(3, 1), (DataPosition{.step = 3, .samples = 11, .epoch = 1, .index = 4}));
  EXPECT_EQ(sampler.StepsPerEpoch(1), 2);
  // transformers has ceil(epochs * steps of an epoch) steps.
  for (const double epochs : {0.25, 0.5, 1.0, 1.25, 1.75, 3.0}) {
    EXPECT_EQ(sampler.StepsFor(sampler.SamplesOf(epochs, 1), 1), std::ceil(2 * epochs)) << epochs;
  }
  // Ranks share a short step out like any other.
  options.micro_batches = 1;
  const Sampler shared(options);
  EXPECT_EQ(Step(shared, 1, 2), (V{4, 5, 6}));
  EXPECT_EQ(Indices(shared, {.step = 1, .rank = 1, .world = 2}), (V{6}));
  // Behind the first step, with steps of 5: one short step, then epochs of two steps.
  options.begin = sampler.After(1, 1);
  options.batch_size = 5;
  options.micro_batches = 1;
  const Sampler later(options);
  EXPECT_EQ(Step(later, 1, 1), (V{4, 5, 6}));
  EXPECT_EQ(Step(later, 2, 1), (V{0, 1, 2, 3, 4}));
  EXPECT_EQ(Step(later, 3, 1), (V{5, 6}));
  EXPECT_EQ(later.After(4, 1).samples, 14);
  EXPECT_EQ(later.StepsFor(later.SamplesOf(2, 1), 1), 4);
}

TEST(SamplerTest, RefusesPlacesOutside) {
  const Sampler sampler({.num_samples = 7, .batch_size = 2, .micro_batches = 2});
  EXPECT_THROW(sampler.Rows({.step = -1}), Error);
  EXPECT_THROW(sampler.Rows({.micro_batch = 2}), Error);
  EXPECT_THROW(sampler.Rows({.rank = 1, .world = 1}), Error);
  EXPECT_THROW(Sampler({.num_samples = 0}), Error);
  EXPECT_THROW(Sampler({.num_samples = 1, .batch_size = 0}), Error);
}

// ---- Loader ----

Batch Numbered(int64_t number) {
  Batch batch;
  batch.rows = number;
  return batch;
}

TEST(PrefetchingLoaderTest, InOrderToTheEnd) {
  for (const int64_t depth : {1, 2, 7}) {
    PrefetchingLoader loader([](int64_t i) { return Numbered(i); },
                             {.begin = 5, .end = 40, .depth = depth});
    for (int64_t i = 5; i < 40; ++i) {
      const auto batch = loader.Next();
      ASSERT_TRUE(batch.ok() && batch->has_value());
      EXPECT_EQ((*batch)->rows, i);
    }
    for (int i = 0; i < 2; ++i) {
      const auto batch = loader.Next();
      ASSERT_TRUE(batch.ok());
      EXPECT_FALSE(batch->has_value());
    }
  }
  PrefetchingLoader none([](int64_t i) { return Numbered(i); }, {.begin = 3, .end = 3});
  EXPECT_FALSE(none.Next()->has_value());
}

TEST(PrefetchingLoaderTest, KeepsAheadButBounded) {
  std::atomic<int64_t> made = 0;
  PrefetchingLoader loader(
      [&](int64_t i) {
        ++made;
        return Numbered(i);
      },
      {.depth = 3});
  const auto wait_for = [&](int64_t count) {
    for (int i = 0; i < 2000 && made < count; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(made, count);
  };
  wait_for(3);
  ASSERT_TRUE(loader.Next().ok());
  wait_for(4);
}

TEST(PrefetchingLoaderTest, FailuresComeInTheirPlaceAndStay) {
  for (const bool throws : {false, true}) {
    PrefetchingLoader loader(
        [&](int64_t i) -> StatusOr<Batch> {
          if (i < 2) return Numbered(i);
          if (throws) throw std::runtime_error("broken");
          return InvalidArgument("batch two");
        },
        {.depth = 4});
    EXPECT_EQ((*loader.Next())->rows, 0);
    EXPECT_EQ((*loader.Next())->rows, 1);
    for (int i = 0; i < 2; ++i) {
      const auto batch = loader.Next();
      ASSERT_FALSE(batch.ok());
      EXPECT_EQ(Message(batch.status()), throws ? "batch 2: broken" : "batch two");
    }
  }
}

TEST(PrefetchingLoaderTest, StopsAtAnyTime) {
  for (int round = 0; round < 200; ++round) {
    PrefetchingLoader loader([](int64_t i) { return Numbered(i); }, {.depth = 1 + round % 3});
    for (int i = 0; i < round % 5; ++i) ASSERT_TRUE(loader.Next().ok());
  }
  EXPECT_THROW(PrefetchingLoader([](int64_t i) { return Numbered(i); }, {.depth = 0}), Error);
}

}  // namespace
}  // namespace tessera::data
