// SPDX-License-Identifier: Apache-2.0
// Texts, or pairs of texts, with labels, from a table (data/dataset/record_input.h).
//
//   TESSERA_ASSIGN_OR_RETURN(auto data, TextClassificationDataset::Open(
//       "sst2/train.tsv", tokenizer, {.max_length = 128, .cache = "out/data/train"}));
//   data->labels().names;                        // {"0", "1"}
//   data->MakeBatch(samples);
//
// A batch has `input_ids`, `attention_mask` (0: padding, on the right, up to the longest row of the
// batch), `token_type_ids` (on request), all int64 [B, T], and `labels`: int64 [B] of names,
// float32 [B] of numbers, float32 [B, fields] of answers, nothing of rows without labels. Its
// targets are its rows.
//
// Rows are tokenised once, with the special tokens of their template (sequence_pair.h) and cut to
// max_length, into <cache>.bin, which all ranks map; the labels are kept in memory.
#ifndef TESSERA_DATA_CLASSIFICATION_TEXT_CLASSIFICATION_DATASET_H_
#define TESSERA_DATA_CLASSIFICATION_TEXT_CLASSIFICATION_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/classification/labels.h"
#include "data/dataset/dataset.h"
#include "data/dataset/indexed_dataset.h"
#include "data/tokenizer/tokenizer.h"

namespace tessera::data {

struct TextClassificationOptions {
  std::string text_column = {};  // empty: the first column that is no label
  std::string text_pair_column = {};
  std::vector<std::string> label_columns = {"label"};  // empty: the table has no labels
  // The names that labels may have, in the order of their ids; empty: those that occur.
  std::vector<std::string> label_names = {};
  // One label field holds numbers to be predicted, also where all of them are whole.
  bool numbers = false;
  int64_t max_length = 0;  // tokens of a row
  bool token_types = false;
  std::string cache = {};  // prefix of the files that tokens are kept in
  bool reuse = true;       // false: tokenise even if they are up to date
};

class TextClassificationDataset : public Dataset {
 public:
  // InvalidArgument for a table, column or label that does not fit, and for a tokenizer without
  // padding or without a template for rows. The tokenizer is not kept.
  static StatusOr<std::shared_ptr<const TextClassificationDataset>> Open(
      const std::string& path, const Tokenizer& tokenizer,
      const TextClassificationOptions& options);

  int64_t size() const override { return rows_->num_documents(); }
  StatusOr<Batch> MakeBatch(std::span<const Sample> samples) const override;

  const LabelColumn& labels() const { return labels_; }

 private:
  TextClassificationDataset() = default;
  Tensor LabelsOf(std::span<const Sample> samples) const;

  std::shared_ptr<const IndexedDataset> rows_;  // a document each: ids, then token types if any
  LabelColumn labels_;
  bool pairs_ = false;        // rows have their token types beside them
  bool token_types_ = false;  // batches have them
  int64_t pad_id_ = 0;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_CLASSIFICATION_TEXT_CLASSIFICATION_DATASET_H_
