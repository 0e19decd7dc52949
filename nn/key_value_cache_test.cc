// SPDX-License-Identifier: Apache-2.0
#include "nn/key_value_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "autograd/autograd.h"
#include "ops/cast/cast.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera::nn {
namespace {

constexpr int64_t kGroups = 2;
constexpr int64_t kHeadDim = 3;

// What a row's keys in a layer are, token by token, as the pages have them.
std::vector<float> KeysOf(const CachedKeys& keys, int64_t row) {
  const int64_t page_size = keys.k.size(2);
  const int64_t length = keys.lengths.ToVector<int64_t>()[static_cast<size_t>(row)];
  std::vector<float> values;
  for (int64_t j = 0; j < length; ++j) {
    const auto page = Select(Select(keys.table, 0, row), 0, j / page_size).ToVector<int64_t>()[0];
    const Tensor token = Select(Select(keys.k, 0, page), 1, j % page_size);
    const Tensor other = Select(Select(keys.v, 0, page), 1, j % page_size);
    for (const Tensor& t : {token, other}) {
      for (const float v : t.ToVector<float>()) values.push_back(v);
    }
  }
  return values;
}

// Rows that come, grow, split and go, beside a list for each.
class Rows {
 public:
  Rows(int64_t page_size, uint32_t seed)
      : cache_(2, {.page_size = page_size}), random_(seed), page_size_(page_size) {}

  void Step(const std::vector<int64_t>& rows, const std::vector<int64_t>& counts) {
    int64_t longest = 0;
    for (const int64_t count : counts) longest = std::max(longest, count);
    cache_.BeginStep(rows, counts);
    for (int layer = 0; layer < 2; ++layer) {
      const Shape shape = {std::ssize(rows), kGroups, longest, kHeadDim};
      const Tensor k = CastCopy(RandomTensor(shape, ++salt_), DType::kFloat32);
      const Tensor v = CastCopy(RandomTensor(shape, ++salt_), DType::kFloat32);
      const CachedKeys keys = cache_.Append(layer, k, v);
      for (size_t b = 0; b < rows.size(); ++b) {
        if (static_cast<size_t>(rows[b]) >= expected_.size()) expected_.emplace_back();
        std::vector<float>& values = expected_[static_cast<size_t>(rows[b])][layer];
        for (int64_t t = 0; t < counts[b]; ++t) {
          for (const Tensor& from : {k, v}) {
            const Tensor token = Select(Select(from, 0, static_cast<int64_t>(b)), 1, t);
            for (const float value : token.ToVector<float>()) values.push_back(value);
          }
        }
        EXPECT_EQ(KeysOf(keys, static_cast<int64_t>(b)), values) << "row " << rows[b];
      }
    }
    EXPECT_EQ(cache_.MissingLayer(), -1);
    cache_.EndStep();
  }

  void Reorder(const std::vector<int64_t>& rows) {
    cache_.Reorder(rows);
    std::vector<std::map<int, std::vector<float>>> kept;
    for (const int64_t row : rows) kept.push_back(expected_[static_cast<size_t>(row)]);
    expected_ = kept;
  }

  void AddRow(int64_t source, int64_t length) {
    cache_.AddRow(source, length);
    expected_.emplace_back();
    for (auto [layer, values] : expected_[static_cast<size_t>(source)]) {
      values.resize(static_cast<size_t>(length * 2 * kGroups * kHeadDim));
      expected_.back()[layer] = values;
    }
  }

  void RandomStep() {
    const auto below = [&](int64_t n) { return static_cast<int64_t>(random_() % n); };
    std::vector<int64_t> rows;
    std::vector<int64_t> counts;
    const int64_t before = cache_.num_rows();
    for (int64_t row = 0; row < before; ++row) {
      if (below(3) > 0) rows.push_back(row);
    }
    if (rows.empty() || below(4) == 0) rows.push_back(before);
    std::shuffle(rows.begin(), rows.end(), random_);
    for (size_t b = 0; b < rows.size(); ++b) counts.push_back(below(2 * page_size_) + (b == 0));
    Step(rows, counts);
    if (below(2) == 0) {
      const int64_t source = below(cache_.num_rows());
      AddRow(source, below(cache_.lengths()[static_cast<size_t>(source)] + 1));
    }
    if (below(3) == 0) {
      std::vector<int64_t> kept;
      for (int64_t i = below(5); i >= 0; --i) kept.push_back(below(cache_.num_rows()));
      Reorder(kept);
    }
  }

  KeyValueCache& cache() { return cache_; }

 private:
  KeyValueCache cache_;
  std::mt19937 random_;
  const int64_t page_size_;
  uint64_t salt_ = 0;
  std::vector<std::map<int, std::vector<float>>> expected_;  // by row, by layer
};

TEST(KeyValueCacheTest, RowsComeAndGoAndKeepWhatIsTheirs) {
  for (const int64_t page_size : {1, 3, 32}) {
    for (uint32_t seed = 0; seed < 5; ++seed) {
      Rows rows(page_size, seed);
      for (int step = 0; step < 30; ++step) rows.RandomStep();
      rows.Reorder({});
      EXPECT_EQ(rows.cache().pages_in_use(), 0);
    }
  }
}

TEST(KeyValueCacheTest, RowsShareTheirBeginning) {
  Rows rows(4, 1);
  rows.Step({0}, {10});
  EXPECT_EQ(rows.cache().pages_in_use(), 3);
  rows.Reorder({0, 0, 0});
  EXPECT_EQ(rows.cache().pages_in_use(), 3);
  rows.Step({0, 1, 2}, {1, 1, 1});  // each writes into a last page of its own
  EXPECT_EQ(rows.cache().pages_in_use(), 5);
  rows.Reorder({2});
  EXPECT_EQ(rows.cache().pages_in_use(), 3);
  EXPECT_EQ(rows.cache().lengths(), (std::vector<int64_t>{11}));
}

// Of any length; what is behind it in the page is not seen, and stays the other's.
TEST(KeyValueCacheTest, ARowBeginsWithThePagesOfAnother) {
  Rows rows(4, 1);
  rows.Step({0}, {10});
  rows.AddRow(0, 7);
  rows.AddRow(0, 8);
  rows.AddRow(1, 0);
  EXPECT_EQ(rows.cache().pages_in_use(), 3);
  EXPECT_EQ(rows.cache().lengths(), (std::vector<int64_t>{10, 7, 8, 0}));
  EXPECT_EQ(rows.cache().PagesNeeded({0, 1, 2, 3}, {1, 1, 1, 1}), 3);  // row 1 copies, 0 need not
  rows.Step({0, 1, 2, 3}, {1, 1, 1, 1});
  EXPECT_EQ(rows.cache().pages_in_use(), 6);
  EXPECT_EQ(rows.cache().PagesOf({1, 2}), 4);
  rows.Reorder({3, 1});
  EXPECT_EQ(rows.cache().pages_in_use(), 3);
  rows.Step({0, 1}, {9, 9});
  rows.Reorder({});
  EXPECT_EQ(rows.cache().pages_in_use(), 0);
  rows.cache().AddRow();
  EXPECT_THROW(rows.cache().AddRow(0, 1), Error);
  EXPECT_THROW(rows.cache().AddRow(1, 0), Error);
}

// A step whose pass failed.
TEST(KeyValueCacheTest, WhatAnUnfinishedStepTookIsGivenBack) {
  Rows rows(4, 1);
  rows.Step({0}, {3});
  rows.cache().BeginStep({0}, {9});
  EXPECT_EQ(rows.cache().pages_in_use(), 3);
  rows.Reorder({0, 0});
  EXPECT_EQ(rows.cache().pages_in_use(), 1);
  rows.Step({0, 1}, {6, 6});
  EXPECT_EQ(rows.cache().pages_in_use(), 6);
  rows.cache().BeginStep({1}, {20});
  rows.Step({1, 0}, {1, 4});
  EXPECT_EQ(rows.cache().pages_in_use(), 7);
  rows.cache().BeginStep({2, 3}, {1, 1});
  rows.cache().DropStep();
  EXPECT_EQ(rows.cache().num_rows(), 2);
  EXPECT_EQ(rows.cache().pages_in_use(), 7);
}

// Of two rows that write behind a shared page one keeps it.
TEST(KeyValueCacheTest, RoomIsCountedExactly) {
  KeyValueCache cache(1, {.page_size = 4, .max_pages = 2});
  const Tensor k = Zeros({1, kGroups, 3, kHeadDim}, DType::kFloat32);
  cache.BeginStep({3});
  cache.Append(0, k, k);
  cache.EndStep();
  cache.Reorder({0, 0});
  EXPECT_FALSE(cache.HasRoom({0, 1}, {2, 1}));
  EXPECT_TRUE(cache.HasRoom({0, 1}, {1, 1}));
  cache.BeginStep({1, 1});
  EXPECT_EQ(cache.pages_in_use(), 2);
}

TEST(KeyValueCacheTest, PagesComeAsTheyAreNeededUpToTheBound) {
  KeyValueCache cache(1, {.page_size = 4, .max_pages = 20, .first_pages = 4});
  KeyValueCache whole(1, {.page_size = 4, .max_pages = 20});
  std::vector<int64_t> pages;
  for (int step = 0; step < 10; ++step) {
    const Tensor k = CastCopy(
        RandomTensor({1, kGroups, 8, kHeadDim}, static_cast<uint64_t>(step) + 1), DType::kFloat32);
    cache.BeginStep({8});
    whole.BeginStep({8});
    const CachedKeys keys = cache.Append(0, k, k);
    const CachedKeys other = whole.Append(0, k, k);
    EXPECT_EQ(other.k.size(0), 20);
    const int64_t used = 2 * (step + 1);
    EXPECT_EQ(Slice(keys.k, 0, 0, used).ToVector<float>(),
              Slice(other.k, 0, 0, used).ToVector<float>());
    pages.push_back(keys.k.size(0));
    cache.EndStep();
    whole.EndStep();
  }
  EXPECT_EQ(pages, (std::vector<int64_t>{4, 4, 6, 9, 13, 13, 19, 19, 19, 20}));
  EXPECT_THROW(cache.BeginStep({1}), Error);
}

TEST(KeyValueCacheTest, PagesAreBounded) {
  KeyValueCache cache(1, {.page_size = 4, .max_pages = 3});
  const auto append = [&](int64_t rows, int64_t tokens) {
    const Tensor k = Zeros({rows, kGroups, tokens, kHeadDim}, DType::kFloat32);
    const CachedKeys keys = cache.Append(0, k, k);
    cache.EndStep();
    return keys;
  };
  cache.BeginStep({5});
  EXPECT_EQ(append(1, 5).k.size(0), 3);
  EXPECT_FALSE(cache.HasRoom({1}, {5}));
  EXPECT_TRUE(cache.HasRoom({1}, {4}));
  EXPECT_THROW(cache.BeginStep({1}, {5}), Error);
  EXPECT_EQ(cache.num_rows(), 1);
  cache.BeginStep({1, 0}, {4, 3});
  append(2, 4);
  EXPECT_EQ(cache.lengths(), (std::vector<int64_t>{8, 4}));
  EXPECT_THROW(cache.BeginStep({0}, {1}), Error);
  cache.Reorder({1});
  cache.BeginStep({8});
  append(1, 8);
}

TEST(KeyValueCacheTest, SourcesAreKeptRowByRow) {
  KeyValueCache cache(1, {.page_size = 4});
  const auto source = [](int64_t rows, int64_t tokens, double first) {
    Tensor t = Zeros({rows, 1, tokens, 1}, DType::kFloat32);
    for (int64_t i = 0; i < t.numel(); ++i) {
      t.data<float>()[i] = static_cast<float>(first + static_cast<double>(i));
    }
    return t;
  };
  cache.BeginStep({1, 1});
  EXPECT_FALSE(cache.HasMemory(0));
  cache.SetMemory(0, source(2, 5, 0), source(2, 5, 100));
  cache.EndStep();
  cache.BeginStep({2}, {1});
  EXPECT_FALSE(cache.HasMemory(0));
  cache.SetMemory(0, source(1, 9, 50), source(1, 9, 150));
  cache.EndStep();
  cache.Reorder({2, 1});
  cache.BeginStep({1, 1});
  ASSERT_TRUE(cache.HasMemory(0));
  const CachedKeys all = cache.Memory(0);
  EXPECT_EQ(all.length, 9);
  EXPECT_EQ(KeysOf(all, 1), (std::vector<float>{5, 105, 6, 106, 7, 107, 8, 108, 9, 109}));
  EXPECT_EQ(KeysOf(all, 0).size(), 18u);
  cache.EndStep();
  cache.BeginStep({0, 1, 2}, {1, 1, 1});
  EXPECT_THROW(cache.HasMemory(0), Error);  // one of three has none yet
}

TEST(KeyValueCacheTest, MisuseIsRefused) {
  KeyValueCache cache(1);
  cache.BeginStep({3, 1});
  const Tensor k = Zeros({2, kGroups, 3, kHeadDim}, DType::kFloat32);
  EXPECT_THROW(cache.Append(1, k, k), Error);                  // no such layer
  EXPECT_THROW(cache.Append(0, Slice(k, 0, 0, 1), k), Error);  // a row too few
  EXPECT_THROW(cache.Append(0, Slice(k, 2, 0, 2), k), Error);  // a token too few
  cache.Append(0, k, k);
  EXPECT_EQ(cache.QueryOffsets().ToVector<int32_t>(), (std::vector<int32_t>{0, 0}));
  EXPECT_EQ(cache.LongestAfterStep(), 3);
  cache.EndStep();
  EXPECT_EQ(cache.lengths(), (std::vector<int64_t>{3, 1}));
  EXPECT_THROW(cache.BeginStep({1}), Error);             // there are two
  EXPECT_THROW(cache.BeginStep({0, 0}, {1, 1}), Error);  // the same row twice
  EXPECT_THROW(cache.BeginStep({3}, {1}), Error);        // neither there nor the next
}

}  // namespace
}  // namespace tessera::nn
