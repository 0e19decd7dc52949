// SPDX-License-Identifier: Apache-2.0
// Masked language modelling (Devlin et al. 2019, "BERT"; Liu et al. 2019, "RoBERTa").
//
//   MaskedLanguageDataset data(windows, {.mask_id = 103, .cls_id = 101, .sep_id = 102,
//                                        .vocab_size = 30522, .special_ids = {...}});
//
// A row is [CLS], a window of running text, [SEP]. Of its tokens that are not special ones,
// `probability` are to be guessed: 80 % of those are replaced by the mask, 10 % by any token, 10 %
// stay. Batches: `input_ids` and `labels` (the token where it is to be guessed, else -100), int64
// [B, T]; T is that of the windows + 2. With `pad_id` they may differ in length: a batch is as long
// as its longest row, and an `attention_mask` says where others end. Choices are functions of the
// seed and the sample's position.
#ifndef TESSERA_DATA_MASKING_MASKED_LANGUAGE_DATASET_H_
#define TESSERA_DATA_MASKING_MASKED_LANGUAGE_DATASET_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/dataset/token_dataset.h"

namespace tessera::data {

struct MaskedLanguageOptions {
  int64_t mask_id = 0;
  int64_t cls_id = 0;
  int64_t sep_id = 0;
  // Of windows that differ in length: what is behind the shorter ones.
  std::optional<int64_t> pad_id = {};
  int64_t vocab_size = 0;  // of the tokenizer; the windows' ids may be larger
  double probability = 0.15;
  std::vector<int64_t> special_ids = {};  // neither masked nor put in another's place
  // Whole words are masked: by id, whether a token continues a word. Empty: tokens by themselves.
  std::vector<bool> continues_word = {};
  uint64_t seed = 0;
};

class MaskedLanguageDataset : public Dataset {
 public:
  MaskedLanguageDataset(std::shared_ptr<const TokenDataset> windows,
                        const MaskedLanguageOptions& options);

  int64_t size() const override { return windows_->size(); }
  StatusOr<Batch> MakeBatch(std::span<const Sample> samples) const override;

 private:
  void MaskRow(int64_t position, std::span<int64_t> ids, std::span<int64_t> labels) const;
  // Ids beyond the tokenizer's stay as they are too.
  bool IsSpecial(int64_t id) const {
    return id < 0 || id >= options_.vocab_size || special_[static_cast<size_t>(id)];
  }

  const std::shared_ptr<const TokenDataset> windows_;
  const MaskedLanguageOptions options_;
  std::vector<bool> special_;      // by id
  std::vector<int64_t> ordinary_;  // ids that may be in another's place
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_MASKING_MASKED_LANGUAGE_DATASET_H_
