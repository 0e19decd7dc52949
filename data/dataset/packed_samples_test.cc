// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/packed_samples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "base/error.h"
#include "core/batch_keys.h"

namespace tessera::data {
namespace {

// Sample i has the tokens 100 i, 100 i + 1, ..., each with the target behind it; every third has
// none.
class Counts : public TokenDataset {
 public:
  explicit Counts(std::vector<int64_t> lengths) : lengths_(std::move(lengths)) {}
  int64_t size() const override { return std::ssize(lengths_); }
  int64_t seq_len() const override { return *std::max_element(lengths_.begin(), lengths_.end()); }
  int64_t length(int64_t index) const override { return lengths_[static_cast<size_t>(index)]; }
  bool has_document_ids() const override { return false; }
  Status Fill(int64_t index, const SampleRow& row) const override {
    for (size_t t = 0; t < row.input_ids.size(); ++t) {
      row.input_ids[t] = 100 * index + static_cast<int64_t>(t);
      row.targets[t] = t % 3 == 1 ? kIgnoreLabel : row.input_ids[t] + 1;
    }
    return OkStatus();
  }

 private:
  const std::vector<int64_t> lengths_;
};

std::vector<int64_t> Lengths(int64_t count) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < count; ++i) lengths.push_back(1 + i * i % 37);
  return lengths;
}

TEST(PackIntoRowsTest, EverySampleOnceAndNoRowTooLong) {
  const std::vector<int64_t> lengths = Lengths(1000);
  const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  for (const int64_t window : {1, 7, 100, 8192}) {
    const auto rows = PackIntoRows(lengths, {.row_length = 40, .seed = 3, .window = window});
    std::multiset<int64_t> seen;
    for (const auto& row : rows) {
      int64_t length = 0;
      for (const int64_t sample : row) {
        length += lengths[static_cast<size_t>(sample)];
        seen.insert(sample);
      }
      EXPECT_LE(length, 40);
      EXPECT_GE(length, 1);
    }
    EXPECT_EQ(seen.size(), lengths.size());
    EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), lengths.size());
    // The larger the windows, the less is left empty.
    const int64_t least = (total + 39) / 40;
    EXPECT_LE(std::ssize(rows), window == 1     ? 1000
                                : window < 1000 ? least * 5 / 4
                                                : least * 21 / 20);
  }
}

TEST(PackIntoRowsTest, TheSeedDecides) {
  const std::vector<int64_t> lengths = Lengths(200);
  const auto rows = [&](uint64_t seed) {
    return PackIntoRows(lengths, {.row_length = 40, .seed = seed, .window = 50});
  };
  EXPECT_EQ(rows(1), rows(1));
  EXPECT_NE(rows(1), rows(2));
  EXPECT_TRUE(PackIntoRows({}, {.row_length = 4}).empty());
  EXPECT_THROW(PackIntoRows(lengths, {.row_length = 36}), Error);
  EXPECT_THROW(PackIntoRows(lengths, {.row_length = 40, .window = 0}), Error);
  // The longest first, each where it leaves the least room.
  EXPECT_EQ(PackIntoRows(std::vector<int64_t>{4, 10, 6, 5, 5}, {.row_length = 10}).size(), 3u);
}

TEST(PackedSamplesTest, EachSampleIsByItself) {
  const std::vector<int64_t> lengths = Lengths(30);
  const auto samples = std::make_shared<Counts>(lengths);
  const auto packed = PackedSamples::Create(samples, {.row_length = 50});
  std::vector<Sample> all;
  for (int64_t i = 0; i < packed->size(); ++i) all.push_back({.index = i});
  const auto batch = packed->MakeBatch(all);
  ASSERT_TRUE(batch.ok());
  const Tensor& ids = batch->at(keys::kInputIds);
  const int64_t width = ids.size(1);
  const auto id = ids.ToVector<int64_t>();
  const auto target = batch->at(keys::kTargets).ToVector<int64_t>();
  const auto position = batch->at(keys::kPositionIds).ToVector<int64_t>();
  const auto document = batch->at(keys::kDocumentIds).ToVector<int32_t>();
  int64_t targets = 0;
  for (int64_t r = 0; r < packed->size(); ++r) {
    auto i = static_cast<size_t>(r * width);
    int32_t number = 0;
    int64_t length = 0;
    for (const int64_t sample : packed->samples_of(r)) {
      std::vector<int64_t> alone(static_cast<size_t>(samples->length(sample)));
      std::vector<int64_t> own = alone;
      ASSERT_TRUE(samples->Fill(sample, {alone, own, {}, {}}).ok());
      for (size_t t = 0; t < alone.size(); ++t, ++i, ++length) {
        EXPECT_EQ(id[i], alone[t]);
        EXPECT_EQ(target[i], own[t]);
        EXPECT_EQ(position[i], static_cast<int64_t>(t));
        EXPECT_EQ(document[i], number);
        targets += own[t] != kIgnoreLabel ? 1 : 0;
      }
      ++number;
    }
    EXPECT_EQ(packed->length(r), length);
    // Behind them nothing is learnt, and nothing of theirs is seen.
    for (; i < static_cast<size_t>((r + 1) * width); ++i) {
      EXPECT_EQ(target[i], kIgnoreLabel);
      EXPECT_EQ(document[i], -1);
      EXPECT_EQ(position[i], 0);
    }
  }
  EXPECT_EQ(batch->targets, targets);
  EXPECT_THROW(PackedSamples::Create(packed, {.row_length = 50}), Error);
}

}  // namespace
}  // namespace tessera::data
