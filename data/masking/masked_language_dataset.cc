#include "data/masking/masked_language_dataset.h"

#include <algorithm>

#include "core/batch_keys.h"
#include "core/error.h"
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
  const int64_t window = windows_->seq_len();
  const auto rows = static_cast<int64_t>(samples.size());
  const int64_t length = window + 2;
  Batch batch;
  batch.rows = rows;
  batch.tokens = rows * length;
  const Tensor ids = Empty({rows, length}, DType::kInt64);
  const Tensor labels = Full({rows, length}, static_cast<double>(kIgnoreLabel), DType::kInt64);
  std::vector<int64_t> next(static_cast<size_t>(window));  // not used: targets of causal models
  for (int64_t r = 0; r < rows; ++r) {
    const Sample& sample = samples[static_cast<size_t>(r)];
    int64_t* const row = ids.data<int64_t>() + r * length;
    const std::span<int64_t> text(row + 1, static_cast<size_t>(window));
    TESSERA_RETURN_IF_ERROR(windows_->Fill(
        sample.index,
        {.input_ids = text, .targets = next, .position_ids = {}, .document_ids = {}}));
    row[0] = options_.cls_id;
    row[length - 1] = options_.sep_id;
    MaskRow(sample.position, text,
            {labels.data<int64_t>() + r * length + 1, static_cast<size_t>(window)});
  }
  batch.targets =
      labels.numel() -
      std::count(labels.data<int64_t>(), labels.data<int64_t>() + labels.numel(), kIgnoreLabel);
  batch.tensors = {{keys::kInputIds, ids}, {keys::kLabels, labels}};
  return batch;
}

void MaskedLanguageDataset::MaskRow(int64_t position, std::span<int64_t> ids,
                                    std::span<int64_t> labels) const {
  RandomChoices random(
      RandomKey::FromSeed(options_.seed).With("masked_lm").With(static_cast<uint64_t>(position)));
  const std::vector<bool>& continues = options_.continues_word;
  bool chosen = false;   // of the word that goes on
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
