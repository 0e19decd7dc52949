// SPDX-License-Identifier: Apache-2.0
#include "data/masking/masked_language_dataset.h"

#include <algorithm>

#include "base/error.h"
#include "core/batch_keys.h"
#include "data/masking/random_choices.h"

namespace tessera::data {

MaskedLanguageDataset::MaskedLanguageDataset(std::shared_ptr<const TokenDataset> windows,
                                             const MaskedLanguageOptions& options)
    : windows_(std::move(windows)),
      options_(options),
      special_(static_cast<size_t>(options.vocab_size), false) {
  const auto known = [&](int64_t id) { return id >= 0 && id < options_.vocab_size; };
  TESSERA_CHECK(known(options.mask_id) && known(options.cls_id) && known(options.sep_id),
                "MaskedLanguageDataset", "special tokens beyond the vocabulary of ",
                options.vocab_size);
  for (const int64_t id : options.special_ids) special_.at(static_cast<size_t>(id)) = true;
  for (int64_t id = 0; id < options.vocab_size; ++id) {
    if (!IsSpecial(id)) ordinary_.push_back(id);
  }
  TESSERA_CHECK(!ordinary_.empty(), "MaskedLanguageDataset", "every token is a special one");
}

StatusOr<Batch> MaskedLanguageDataset::MakeBatch(std::span<const Sample> samples) const {
  const auto rows = static_cast<int64_t>(samples.size());
  const int64_t length = windows_->LongestOf(samples) + 2;
  Batch batch;
  batch.rows = rows;
  batch.tokens = rows * length;
  const Tensor ids =
      Full({rows, length}, static_cast<double>(options_.pad_id.value_or(0)), DType::kInt64);
  const Tensor mask = Zeros({rows, length}, DType::kInt64);
  const Tensor labels = Full({rows, length}, static_cast<double>(kIgnoreLabel), DType::kInt64);
  std::vector<int64_t> next;  // not used: targets of causal models
  for (int64_t r = 0; r < rows; ++r) {
    const Sample& sample = samples[static_cast<size_t>(r)];
    int64_t* const row = ids.data<int64_t>() + r * length;
    const auto window = static_cast<size_t>(windows_->length(sample.index));
    const std::span<int64_t> text(row + 1, window);
    next.resize(window);
    TESSERA_RETURN_IF_ERROR(windows_->Fill(
        sample.index,
        {.input_ids = text, .targets = next, .position_ids = {}, .document_ids = {}}));
    row[0] = options_.cls_id;
    row[window + 1] = options_.sep_id;
    MaskRow(sample.position, text, {labels.data<int64_t>() + r * length + 1, window});
    std::fill_n(mask.data<int64_t>() + r * length, window + 2, 1);
    TESSERA_CHECK(options_.pad_id || static_cast<int64_t>(window) + 2 == length,
                  "MaskedLanguageDataset", "windows differ in length, and there is no pad_id");
  }
  batch.targets =
      labels.numel() -
      std::count(labels.data<int64_t>(), labels.data<int64_t>() + labels.numel(), kIgnoreLabel);
  batch.tensors = {{keys::kInputIds, ids}, {keys::kLabels, labels}};
  if (options_.pad_id) batch.tensors.set(keys::kAttentionMask, mask);
  return batch;
}

void MaskedLanguageDataset::MaskRow(int64_t position, std::span<int64_t> ids,
                                    std::span<int64_t> labels) const {
  RandomChoices random(
      RandomKey::FromSeed(options_.seed).With("masked_lm").With(static_cast<uint64_t>(position)));
  const std::vector<bool>& continues = options_.continues_word;
  bool chosen = false;   // of the word that continues
  bool in_word = false;  // whether there is one
  for (size_t i = 0; i < ids.size(); ++i) {
    const int64_t id = ids[i];
    if (IsSpecial(id)) {
      in_word = false;
      continue;
    }
    const bool goes_on = in_word && !continues.empty() && continues[static_cast<size_t>(id)];
    if (!goes_on) chosen = random.Chance(options_.probability);
    in_word = true;
    if (!chosen) continue;
    labels[i] = id;
    const double kind = random.Uniform();
    if (kind < 0.8) {
      ids[i] = options_.mask_id;
    } else if (kind < 0.9) {
      ids[i] = ordinary_[static_cast<size_t>(random.Below(std::ssize(ordinary_)))];
    }
  }
}

}  // namespace tessera::data
