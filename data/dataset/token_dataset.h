// SPDX-License-Identifier: Apache-2.0
// Samples of token ids: language modelling.
//
//   TESSERA_ASSIGN_OR_RETURN(Batch batch, tokens.MakeBatch(samples));
//   // input_ids, targets: int64 [rows, tokens]
//
// A batch is as long as the longest of its samples, which most datasets have all of one length.
// Behind the others stand tokens 0 without targets, in a document -1 of their own, or, without
// document ids, with token_mask (int32) 0. A causal model's attention needs no mask of them, as no
// token sees what is behind it.
//
// targets[t] is the token that input_ids[t] should predict: the next one, already shifted, or
// kIgnoreLabel. With document ids there are also position_ids (int64, restarting with each
// document) and document_ids (int32, 0, 1, ... within each row; attention stays inside).
#ifndef TESSERA_DATA_DATASET_TOKEN_DATASET_H_
#define TESSERA_DATA_DATASET_TOKEN_DATASET_H_

#include <cstdint>
#include <optional>
#include <span>

#include "data/dataset/dataset.h"

namespace tessera::data {

// Where one sample goes; each span has as many elements as the sample, the last two are empty in
// datasets without document ids.
struct SampleRow {
  std::span<int64_t> input_ids;
  std::span<int64_t> targets;
  std::span<int64_t> position_ids;
  std::span<int64_t> document_ids;
};

// The token_mask of rows with so many tokens each, and more behind them: int32 [rows, columns].
Tensor TokenMask(std::span<const int64_t> lengths, int64_t columns);

// A dataset whose samples are rows of tokens.
class TokenDataset : public Dataset {
 public:
  virtual int64_t seq_len() const = 0;  // tokens of each sample, or of the longest
  // Those of sample `index`.
  virtual int64_t length(int64_t /*index*/) const { return seq_len(); }
  std::optional<int64_t> length_of(int64_t index) const override { return length(index); }
  // Whether samples come with position ids and document ids.
  virtual bool has_document_ids() const = 0;
  // Writes sample `index` of [0, size()). Safe from several threads.
  virtual Status Fill(int64_t index, const SampleRow& row) const = 0;

  StatusOr<Batch> MakeBatch(std::span<const Sample> samples) const override;
  // Of the longest of them.
  int64_t LongestOf(std::span<const Sample> samples) const;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_DATASET_TOKEN_DATASET_H_
