// SPDX-License-Identifier: Apache-2.0
#include "data/masking/blank_infilling_dataset.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "core/batch_keys.h"

namespace tessera::data {
namespace {

// Blanks of a window: a blank adds two tokens to the row. A quarter more than are needed on
// average, so that few rows stop short of the share because their spans came out small.
int64_t MostSpans(int64_t window, const BlankInfillingOptions& options) {
  const double spans =
      static_cast<double>(window) * options.masked_share / std::max(1.0, options.mean_span_length);
  return 1 + static_cast<int64_t>(std::ceil(1.25 * spans));
}

int64_t MostToMask(int64_t tokens, double share) {
  return std::max<int64_t>(
      1, static_cast<int64_t>(std::nearbyint(share * static_cast<double>(tokens))));
}

}  // namespace

struct BlankInfillingDataset::Row {
  std::vector<int64_t> ids;
  std::vector<int64_t> labels;
  std::vector<int64_t> places;  // position_ids, the two coordinates
  std::vector<int64_t> offsets;
  int64_t prefix = 0;

  void Add(int64_t id, int64_t label, int64_t place, int64_t offset) {
    ids.push_back(id);
    labels.push_back(label);
    places.push_back(place);
    offsets.push_back(offset);
  }
};

int64_t WindowForBlanks(int64_t row, const BlankInfillingOptions& options) {
  const int64_t around = (options.cls_id >= 0 ? 1 : 0) + (options.eos_id >= 0 ? 1 : 0);
  int64_t window = row;
  while (window > 1 && window + 2 * MostSpans(window, options) + around > row) --window;
  return window;
}

BlankInfillingDataset::BlankInfillingDataset(std::shared_ptr<const TokenDataset> windows,
                                             const BlankInfillingOptions& options)
    : windows_(std::move(windows)), options_(options) {
  TESSERA_CHECK(options.sentence_share + options.document_share <= 1, "BlankInfillingDataset",
                "the shares of the kinds of rows exceed 1");
}

// Lengths first, then places: the spans are cut out of the window with at least one token between
// two of them, every way to place them being as likely.
std::vector<BlankInfillingDataset::Span> BlankInfillingDataset::ShortSpans(
    int64_t tokens, RandomChoices* random) const {
  int64_t left = MostToMask(tokens, options_.masked_share);
  const int64_t most = MostSpans(tokens, options_);
  std::vector<int64_t> lengths;
  int64_t covered = 0;
  while (left > 0 && std::ssize(lengths) < most) {
    const int64_t drawn = std::max<int64_t>(1, random->Poisson(options_.mean_span_length));
    lengths.push_back(std::min(drawn, left));
    covered += lengths.back();
    left -= lengths.back();
  }
  // Tokens that stay, in as many + 1 runs, of which the first and the last may be empty.
  const int64_t kept = tokens - covered;
  const int64_t inner = std::ssize(lengths) - 1;
  if (kept < inner) return {{0, covered}};
  const std::vector<int64_t> runs = random->Segments(kept - inner + 2 + inner, inner + 2);
  std::vector<Span> spans;
  int64_t at = runs[0] - 1;
  for (size_t i = 0; i < lengths.size(); ++i) {
    spans.push_back({at, lengths[i]});
    at += lengths[i] + runs[i + 1];
  }
  return spans;
}

// Whole sentences of the window until the share is reached.
std::vector<BlankInfillingDataset::Span> BlankInfillingDataset::Sentences(
    const std::vector<int64_t>& text, RandomChoices* random) const {
  std::vector<Span> sentences;
  int64_t begin = 0;
  for (int64_t i = 0; i < std::ssize(text); ++i) {
    const auto id = static_cast<size_t>(text[static_cast<size_t>(i)]);
    if (id >= options_.ends_sentence.size() || !options_.ends_sentence[id]) continue;
    // The window's first sentence lacks its beginning.
    if (begin > 0) sentences.push_back({begin, i + 1 - begin});
    begin = i + 1;
  }
  std::vector<int64_t> order(sentences.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  random->Shuffle(&order);
  int64_t left = MostToMask(std::ssize(text), options_.masked_share);
  std::vector<Span> spans;
  for (const int64_t i : order) {
    if (left <= 0 || std::ssize(spans) == MostSpans(std::ssize(text), options_)) break;
    spans.push_back(sentences[static_cast<size_t>(i)]);
    left -= spans.back().length;
  }
  std::sort(spans.begin(), spans.end(), [](Span a, Span b) { return a.begin < b.begin; });
  return spans;
}

std::vector<BlankInfillingDataset::Span> BlankInfillingDataset::ChooseSpans(
    const std::vector<int64_t>& text, RandomChoices* random, int64_t* mask) const {
  const int64_t tokens = std::ssize(text);
  const double kind = random->Uniform();
  if (kind < options_.document_share) {
    *mask = options_.document_mask_id;
    const double share = 0.5 + 0.5 * random->Uniform();
    const int64_t length = std::clamp<int64_t>(
        static_cast<int64_t>(std::ceil(share * static_cast<double>(tokens))), 1, tokens);
    return {{tokens - length, length}};
  }
  if (kind < options_.document_share + options_.sentence_share) {
    *mask = options_.sentence_mask_id;
    std::vector<Span> sentences = Sentences(text, random);
    if (!sentences.empty()) return sentences;
  }
  *mask = options_.mask_id;
  return ShortSpans(tokens, random);
}

BlankInfillingDataset::Row BlankInfillingDataset::MakeRow(const std::vector<int64_t>& text,
                                                          int64_t position) const {
  RandomChoices random(RandomKey::FromSeed(options_.seed)
                           .With("blank_infilling")
                           .With(static_cast<uint64_t>(position)));
  int64_t mask = 0;
  const std::vector<Span> spans = ChooseSpans(text, &random, &mask);
  Row row;
  const auto add_context = [&](int64_t id) { row.Add(id, kIgnoreLabel, std::ssize(row.ids), 0); };
  if (options_.cls_id >= 0) add_context(options_.cls_id);
  std::vector<int64_t> blanks;
  int64_t at = 0;
  for (const Span& span : spans) {
    for (; at < span.begin; ++at) add_context(text[static_cast<size_t>(at)]);
    blanks.push_back(std::ssize(row.ids));
    add_context(mask);
    at += span.length;
  }
  for (; at < std::ssize(text); ++at) add_context(text[static_cast<size_t>(at)]);
  if (options_.eos_id >= 0) add_context(options_.eos_id);
  row.prefix = std::ssize(row.ids);

  std::vector<int64_t> order(spans.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  random.Shuffle(&order);
  for (const int64_t which : order) {
    const Span& span = spans[static_cast<size_t>(which)];
    int64_t input = options_.sop_id;
    for (int64_t i = 0; i <= span.length; ++i) {
      const int64_t next =
          i < span.length ? text[static_cast<size_t>(span.begin + i)] : options_.eop_id;
      row.Add(input, next, blanks[static_cast<size_t>(which)], i + 1);
      input = next;
    }
  }
  return row;
}

StatusOr<Batch> BlankInfillingDataset::MakeBatch(std::span<const Sample> samples) const {
  std::vector<Row> made;
  std::vector<int64_t> text(static_cast<size_t>(windows_->seq_len()));
  std::vector<int64_t> next(text.size());  // not used: targets of causal models
  int64_t longest = 0;
  for (const Sample& sample : samples) {
    TESSERA_RETURN_IF_ERROR(windows_->Fill(
        sample.index,
        {.input_ids = text, .targets = next, .position_ids = {}, .document_ids = {}}));
    made.push_back(MakeRow(text, sample.position));
    longest = std::max(longest, static_cast<int64_t>(made.back().ids.size()));
  }
  const auto rows = static_cast<int64_t>(samples.size());
  const Tensor ids = Full({rows, longest}, static_cast<double>(options_.pad_id), DType::kInt64);
  const Tensor labels = Full({rows, longest}, static_cast<double>(kIgnoreLabel), DType::kInt64);
  const Tensor positions = Zeros({rows, 2, longest}, DType::kInt64);
  const Tensor prefix = Empty({rows}, DType::kInt64);
  Batch batch;
  for (int64_t r = 0; r < rows; ++r) {
    const Row& row = made[static_cast<size_t>(r)];
    std::copy(row.ids.begin(), row.ids.end(), ids.data<int64_t>() + r * longest);
    std::copy(row.labels.begin(), row.labels.end(), labels.data<int64_t>() + r * longest);
    std::copy(row.places.begin(), row.places.end(), positions.data<int64_t>() + 2 * r * longest);
    std::copy(row.offsets.begin(), row.offsets.end(),
              positions.data<int64_t>() + (2 * r + 1) * longest);
    prefix.data<int64_t>()[r] = row.prefix;
    batch.targets += static_cast<int64_t>(row.ids.size()) - row.prefix;
  }
  batch.rows = rows;
  batch.tokens = rows * longest;
  batch.tensors = {{keys::kInputIds, ids},
                   {keys::kLabels, labels},
                   {keys::kPositionIds, positions},
                   {keys::kAttentionMask, prefix}};
  return batch;
}

}  // namespace tessera::data
