// SPDX-License-Identifier: Apache-2.0
// The objectives over running text: what was hidden can be put back, in the shares that were asked
// for, and depends on the seed and the sample's position alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "core/batch_keys.h"
#include "data/masking/blank_infilling_dataset.h"
#include "data/masking/masked_language_dataset.h"
#include "data/masking/random_choices.h"
#include "data/masking/span_corruption_dataset.h"

namespace tessera::data {
namespace {

// Window i holds the ids first + (i * seq_len + t) % range.
class CountingWindows : public TokenDataset {
 public:
  CountingWindows(int64_t seq_len, int64_t first, int64_t range)
      : seq_len_(seq_len), first_(first), range_(range) {}
  int64_t size() const override { return 1000; }
  int64_t seq_len() const override { return seq_len_; }
  bool has_document_ids() const override { return false; }
  Status Fill(int64_t index, const SampleRow& row) const override {
    for (int64_t t = 0; t < std::ssize(row.input_ids); ++t) {
      row.input_ids[static_cast<size_t>(t)] = first_ + (index * seq_len_ + t) % range_;
      row.targets[static_cast<size_t>(t)] = -7;
    }
    return OkStatus();
  }
  std::vector<int64_t> Text(int64_t index) const {
    std::vector<int64_t> ids(static_cast<size_t>(seq_len_));
    std::vector<int64_t> next(ids.size());
    EXPECT_TRUE(
        Fill(index, {.input_ids = ids, .targets = next, .position_ids = {}, .document_ids = {}})
            .ok());
    return ids;
  }

 private:
  const int64_t seq_len_;
  const int64_t first_;
  const int64_t range_;
};

std::vector<int64_t> Row(const Batch& batch, const TensorKey& key, int64_t row) {
  const Tensor& t = batch.at(key);
  const std::vector<int64_t> all = t.ToVector<int64_t>();
  const int64_t width = t.numel() / t.size(0);
  return {all.begin() + row * width, all.begin() + (row + 1) * width};
}

Batch Make(const Dataset& data, const std::vector<Sample>& samples) {
  auto batch = data.MakeBatch(samples);
  EXPECT_TRUE(batch.ok()) << Message(batch.status());
  return *std::move(batch);
}

TEST(RandomChoicesTest, SegmentsCoverAllWaysToCut) {
  std::map<std::vector<int64_t>, int> seen;
  for (uint64_t i = 0; i < 3000; ++i) {
    RandomChoices random(RandomKey::FromSeed(i));
    const std::vector<int64_t> lengths = random.Segments(5, 3);
    ASSERT_EQ(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}), 5);
    ++seen[lengths];
  }
  ASSERT_EQ(seen.size(), 6u);  // compositions of 5 into 3 parts
  for (const auto& [lengths, count] : seen) EXPECT_NEAR(count, 500, 110);
}

TEST(RandomChoicesTest, PoissonHasItsMeanAndVariance) {
  RandomChoices random(RandomKey::FromSeed(3));
  double sum = 0;
  double squares = 0;
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    const auto n = static_cast<double>(random.Poisson(3));
    sum += n;
    squares += n * n;
  }
  const double mean = sum / kDraws;
  EXPECT_NEAR(mean, 3, 0.06);
  EXPECT_NEAR(squares / kDraws - mean * mean, 3, 0.15);
}

MaskedLanguageOptions MlmOptions() {
  return {.mask_id = 3,
          .cls_id = 1,
          .sep_id = 2,
          .vocab_size = 100,
          .special_ids = {0, 1, 2, 3, 20},
          .seed = 5};
}

TEST(MaskedLanguageTest, HidesTheAskedSharesAndNoSpecialToken) {
  const auto windows = std::make_shared<CountingWindows>(50, 10, 40);
  const MaskedLanguageDataset data(windows, MlmOptions());
  int64_t ordinary = 0;
  int64_t chosen = 0;
  int64_t masked = 0;
  int64_t kept = 0;
  int64_t targets = 0;
  for (int64_t i = 0; i < 400; ++i) {
    const Batch batch = Make(data, {{.index = i, .position = i}});
    const std::vector<int64_t> ids = Row(batch, keys::kInputIds, 0);
    const std::vector<int64_t> labels = Row(batch, keys::kLabels, 0);
    const std::vector<int64_t> text = windows->Text(i);
    ASSERT_EQ(ids.size(), 52u);
    EXPECT_EQ(ids.front(), 1);
    EXPECT_EQ(ids.back(), 2);
    targets += batch.targets;
    for (size_t t = 0; t < text.size(); ++t) {
      ordinary += text[t] != 20;
      if (labels[t + 1] == kIgnoreLabel) {
        ASSERT_EQ(ids[t + 1], text[t]);
        continue;
      }
      ASSERT_NE(text[t], 20) << "a special token was chosen";
      ASSERT_EQ(labels[t + 1], text[t]);
      ++chosen;
      masked += ids[t + 1] == 3;
      kept += ids[t + 1] == text[t];
      ASSERT_TRUE(ids[t + 1] == 3 || ids[t + 1] >= 4);
      ASSERT_NE(ids[t + 1], 20);
    }
  }
  EXPECT_EQ(targets, chosen);
  const auto share = [](int64_t a, int64_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
  };
  EXPECT_NEAR(share(chosen, ordinary), 0.15, 0.01);
  EXPECT_NEAR(share(masked, chosen), 0.8, 0.03);
  EXPECT_NEAR(share(kept, chosen), 0.1 + 0.1 / 95, 0.025);
}

TEST(MaskedLanguageTest, DependsOnSeedAndPositionAlone) {
  const auto windows = std::make_shared<CountingWindows>(50, 10, 40);
  const MaskedLanguageDataset data(windows, MlmOptions());
  const Batch together = Make(data, {{.index = 4, .position = 9}, {.index = 7, .position = 2}});
  const Batch alone = Make(data, {{.index = 7, .position = 2}});
  EXPECT_EQ(Row(together, keys::kInputIds, 1), Row(alone, keys::kInputIds, 0));
  const Batch later = Make(data, {{.index = 7, .position = 1002}});  // the next epoch
  EXPECT_NE(Row(later, keys::kLabels, 0), Row(alone, keys::kLabels, 0));
  MaskedLanguageOptions other = MlmOptions();
  other.seed = 6;
  EXPECT_NE(Row(Make(MaskedLanguageDataset(windows, other), {{.index = 7, .position = 2}}),
                keys::kLabels, 0),
            Row(alone, keys::kLabels, 0));
}

// Window i is cut to 10 + 5 i tokens.
class CutWindows : public CountingWindows {
 public:
  using CountingWindows::CountingWindows;
  int64_t length(int64_t index) const override { return 10 + 5 * index; }
};

TEST(MaskedLanguageTest, ShorterTextsArePaddedAndMaskedAlike) {
  MaskedLanguageOptions options = MlmOptions();
  options.pad_id = 0;
  const MaskedLanguageDataset data(std::make_shared<CutWindows>(50, 10, 40), options);
  const Batch together = Make(data, {{.index = 1, .position = 9}, {.index = 4, .position = 2}});
  EXPECT_EQ(together.at(keys::kInputIds).shape(), (Shape{2, 32}));
  const Batch alone = Make(data, {{.index = 1, .position = 9}});
  EXPECT_EQ(Row(alone, keys::kAttentionMask, 0), std::vector<int64_t>(17, 1));
  EXPECT_EQ(alone.targets + Make(data, {{.index = 4, .position = 2}}).targets, together.targets);
  for (const auto& [key, padding] :
       {std::pair(keys::kInputIds, int64_t{0}), std::pair(keys::kLabels, kIgnoreLabel)}) {
    std::vector<int64_t> row = Row(alone, key, 0);
    ASSERT_EQ(row.size(), 17u);
    row.resize(32, padding);
    EXPECT_EQ(Row(together, key, 0), row);
  }
  std::vector<int64_t> mask(17, 1);
  mask.resize(32, 0);
  EXPECT_EQ(Row(together, keys::kAttentionMask, 0), mask);
  EXPECT_EQ(Row(together, keys::kAttentionMask, 1), std::vector<int64_t>(32, 1));
}

TEST(MaskedLanguageTest, WholeWordsAreChosenTogether) {
  const auto windows = std::make_shared<CountingWindows>(60, 10, 40);
  MaskedLanguageOptions options = MlmOptions();
  options.special_ids = {0, 1, 2, 3};
  options.continues_word.assign(100, false);
  for (size_t id = 0; id < 100; ++id) options.continues_word[id] = id % 3 != 0;  // words of three
  const MaskedLanguageDataset data(windows, options);
  int64_t chosen = 0;
  for (int64_t i = 0; i < 200; ++i) {
    const std::vector<int64_t> labels =
        Row(Make(data, {{.index = i, .position = i}}), keys::kLabels, 0);
    const std::vector<int64_t> text = windows->Text(i);
    for (size_t t = 1; t < text.size(); ++t) {
      if (text[t] % 3 == 0) continue;
      EXPECT_EQ(labels[t + 1] == kIgnoreLabel, labels[t] == kIgnoreLabel) << i << " " << t;
      chosen += labels[t + 1] != kIgnoreLabel;
    }
  }
  EXPECT_GT(chosen, 500);
}

// t5/data/preprocessors.py, random_spans_helper: 512 tokens of input are made of 568 of text, and
// go with 114 of targets.
TEST(SpanCorruptionTest, LengthsAreThoseOfT5) {
  const SpanCorruptionLengths lengths = LengthsForInput(512, 0.15, 3.0);
  EXPECT_EQ(lengths.text, 568);
  EXPECT_EQ(lengths.target, 114);
  EXPECT_EQ(lengths.input, 512);
  for (int64_t input = 4; input < 200; ++input) {
    const SpanCorruptionLengths l = LengthsForInput(input, 0.15, 3.0);
    EXPECT_LE(l.input, input);
    EXPECT_GT(LengthsOfText(l.text + 1, 0.15, 3.0).input, input);
  }
}

TEST(SpanCorruptionTest, TargetsPutBackWhatWasTakenOut) {
  const int64_t text_length = 97;
  const auto windows = std::make_shared<CountingWindows>(text_length, 10, 500);
  const SpanCorruptionLengths lengths = LengthsOfText(text_length, 0.3, 4.0);
  std::vector<int64_t> sentinels;
  for (int64_t i = 0; i < lengths.spans; ++i) sentinels.push_back(999 - i);
  const SpanCorruptionDataset data(
      windows,
      {.sentinels = sentinels, .eos_id = 1, .noise_density = 0.3, .mean_span_length = 4.0});
  std::set<std::vector<int64_t>> different;
  for (int64_t i = 0; i < 50; ++i) {
    const Batch batch = Make(data, {{.index = i, .position = 3 * i}});
    const std::vector<int64_t> input = Row(batch, keys::kInputIds, 0);
    const std::vector<int64_t> target = Row(batch, keys::kLabels, 0);
    ASSERT_EQ(std::ssize(input), lengths.input);
    ASSERT_EQ(std::ssize(target), lengths.target);
    EXPECT_EQ(batch.targets, lengths.target);
    std::map<int64_t, std::vector<int64_t>> spans;
    int64_t sentinel = 0;
    for (size_t t = 0; t + 1 < target.size(); ++t) {
      if (target[t] > 900) {
        sentinel = target[t];
        EXPECT_EQ(sentinel, 999 - std::ssize(spans));
        spans[sentinel];
      } else {
        spans.at(sentinel).push_back(target[t]);
      }
    }
    std::vector<int64_t> text;
    for (size_t t = 0; t + 1 < input.size(); ++t) {
      if (input[t] > 900) {
        text.insert(text.end(), spans.at(input[t]).begin(), spans.at(input[t]).end());
      } else {
        text.push_back(input[t]);
      }
    }
    EXPECT_EQ(text, windows->Text(i));
    EXPECT_EQ(input.back(), 1);
    EXPECT_EQ(target.back(), 1);
    std::vector<int64_t> shape;  // where the sentinels stand
    for (size_t t = 0; t < input.size(); ++t) {
      if (input[t] > 900) shape.push_back(static_cast<int64_t>(t));
    }
    different.insert(shape);
  }
  EXPECT_GT(different.size(), 45u);
  EXPECT_THROW(SpanCorruptionDataset(windows, {.sentinels = {9}, .eos_id = 1}), Error);
}

struct Blanks {
  BlankInfillingOptions options = {.mask_id = 900,
                                   .sentence_mask_id = 901,
                                   .document_mask_id = 902,
                                   .sop_id = 903,
                                   .eop_id = 904,
                                   .pad_id = 905,
                                   .cls_id = 906,
                                   .eos_id = 907};
  Blanks() {
    options.ends_sentence.assign(1000, false);
    for (size_t id = 10; id < 500; id += 9) options.ends_sentence[id] = true;
  }
};

// Puts part B back into part A, checking positions on the way; returns the blanks' token.
int64_t CheckBlanks(const Batch& batch, int64_t row, const std::vector<int64_t>& text) {
  const std::vector<int64_t> ids = Row(batch, keys::kInputIds, row);
  const std::vector<int64_t> labels = Row(batch, keys::kLabels, row);
  const std::vector<int64_t> positions = Row(batch, keys::kPositionIds, row);
  const int64_t width = std::ssize(ids);
  const int64_t prefix =
      batch.at(keys::kAttentionMask).ToVector<int64_t>()[static_cast<size_t>(row)];
  std::map<int64_t, std::vector<int64_t>> filled;  // by the blank's place
  int64_t end = prefix;
  while (end < width && ids[static_cast<size_t>(end)] != 905) ++end;
  int64_t place = -1;
  int64_t offset = 0;
  for (int64_t t = prefix; t < end; ++t) {
    const auto at = static_cast<size_t>(t);
    if (ids[at] == 903) {
      place = positions[at];
      offset = 0;
    } else {
      filled[place].push_back(ids[at]);
      EXPECT_EQ(labels[at - 1], ids[at]) << "the label is the next input";
    }
    EXPECT_EQ(positions[at], place);
    EXPECT_EQ(positions[static_cast<size_t>(width + t)], ++offset);
    const bool last = t + 1 == end || ids[at + 1] == 903;
    EXPECT_EQ(labels[at] == 904, last);
  }
  int64_t blank = 0;
  std::vector<int64_t> whole;
  for (int64_t t = 0; t < prefix; ++t) {
    const auto at = static_cast<size_t>(t);
    EXPECT_EQ(labels[at], kIgnoreLabel);
    EXPECT_EQ(positions[at], t);
    EXPECT_EQ(positions[static_cast<size_t>(width + t)], 0);
    if (ids[at] >= 900 && ids[at] <= 902) {
      EXPECT_TRUE(blank == 0 || blank == ids[at]) << "one kind of blank per row";
      blank = ids[at];
      const std::vector<int64_t>& span = filled[t];
      EXPECT_FALSE(span.empty());
      whole.insert(whole.end(), span.begin(), span.end());
    } else if (ids[at] < 900) {
      whole.push_back(ids[at]);
    }
  }
  EXPECT_EQ(whole, text);
  EXPECT_EQ(ids[0], 906);
  EXPECT_EQ(ids[static_cast<size_t>(prefix - 1)], 907);
  return blank;
}

TEST(BlankInfillingTest, PartBFillsTheBlanksInEveryKindOfRow) {
  Blanks blanks;
  blanks.options.sentence_share = 0.25;
  blanks.options.document_share = 0.5;
  const int64_t row_length = 80;
  const int64_t window = WindowForBlanks(row_length, blanks.options);
  EXPECT_LT(window, row_length);
  EXPECT_GT(window, 60);
  const auto windows = std::make_shared<CountingWindows>(window, 10, 400);
  const BlankInfillingDataset data(windows, blanks.options);
  std::map<int64_t, int> kinds;
  int64_t hidden = 0;
  int64_t short_rows = 0;
  for (int64_t i = 0; i < 400; i += 2) {
    const Batch batch =
        Make(data, {{.index = i, .position = i}, {.index = i + 1, .position = i + 1}});
    EXPECT_LE(batch.at(keys::kInputIds).size(1), row_length);
    int64_t targets = 0;
    for (const int64_t r : {0, 1}) {
      const int64_t kind = CheckBlanks(batch, r, windows->Text(i + r));
      ++kinds[kind];
      const std::vector<int64_t> labels = Row(batch, keys::kLabels, r);
      const int64_t mine =
          std::ssize(labels) - std::count(labels.begin(), labels.end(), kIgnoreLabel);
      targets += mine;
      const int64_t spans = std::count(labels.begin(), labels.end(), 904);
      if (kind == 900) {
        hidden += mine - spans;
        ++short_rows;
      }
      if (kind == 902) {
        EXPECT_EQ(spans, 1);
        EXPECT_GE(mine - spans, window / 2);
      }
    }
    EXPECT_EQ(batch.targets, targets);
  }
  EXPECT_NEAR(kinds[902], 200, 45);
  EXPECT_NEAR(kinds[901], 100, 40);
  EXPECT_NEAR(kinds[900], 100, 40);
  const auto share = static_cast<double>(hidden) / static_cast<double>(short_rows * window);
  EXPECT_NEAR(share, 0.15, 0.008);
}

TEST(BlankInfillingTest, ShortWindowsAndOrdersOfSpans) {
  Blanks blanks;
  blanks.options.document_share = 0;
  for (const int64_t window : {4, 5, 9}) {
    const auto windows = std::make_shared<CountingWindows>(window, 10, 300);
    const BlankInfillingDataset data(windows, blanks.options);
    for (int64_t i = 0; i < 40; ++i) {
      EXPECT_EQ(CheckBlanks(Make(data, {{.index = i, .position = i}}), 0, windows->Text(i)), 900);
    }
  }
  // Spans come in a random order: their blanks' places do not always rise.
  const auto windows = std::make_shared<CountingWindows>(100, 10, 300);
  const BlankInfillingDataset data(windows, blanks.options);
  int rising = 0;
  for (int64_t i = 0; i < 60; ++i) {
    const Batch batch = Make(data, {{.index = i, .position = i}});
    const std::vector<int64_t> ids = Row(batch, keys::kInputIds, 0);
    const std::vector<int64_t> positions = Row(batch, keys::kPositionIds, 0);
    std::vector<int64_t> places;
    for (size_t t = 0; t < ids.size(); ++t) {
      if (ids[t] == 903) places.push_back(positions[t]);
    }
    rising += std::is_sorted(places.begin(), places.end());
  }
  EXPECT_LT(rising, 20);
}

}  // namespace
}  // namespace tessera::data
