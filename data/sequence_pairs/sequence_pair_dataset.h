// SPDX-License-Identifier: Apache-2.0
// Pairs of texts for encoder-decoder models: translation, summaries, question and answer.
//
//   TESSERA_ASSIGN_OR_RETURN(
//       std::shared_ptr<const SequencePairDataset> pairs,
//       SequencePairDataset::Open({.source = "train.en", .target = "train.de"}, *tokenizer,
//                                 "out/data/train", {.max_source_length = 128}));
//   TESSERA_ASSIGN_OR_RETURN(Batch batch, pairs->MakeBatch(samples));
//   // input_ids, attention_mask: int64 [rows, S]; labels: int64 [rows, T]
//
// A row is as long as the longest of its batch. Sources are padded with the tokenizer's pad token
// (0 where it has none) and an attention mask of 0, labels with kIgnoreLabel; a text has the
// special tokens that the tokenizer puts around one (T5: </s> behind it), what is too long is cut
// before them. The model makes its decoder's inputs from the labels (models/t5).
//
// Texts are encoded once, into files beside `cache` (token_cache.h) that several processes share.
#ifndef TESSERA_DATA_SEQUENCE_PAIRS_SEQUENCE_PAIR_DATASET_H_
#define TESSERA_DATA_SEQUENCE_PAIRS_SEQUENCE_PAIR_DATASET_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/status.h"
#include "data/dataset/dataset.h"
#include "data/dataset/indexed_dataset.h"
#include "data/tokenizer/tokenizer.h"

namespace tessera::data {

// Two text files whose lines belong together; or one table (record_input.h: .tsv, .jsonl) of which
// two columns do, `target` then being empty.
struct SequencePairFiles {
  std::string source;
  std::string target = {};
  std::string source_column = "source";
  std::string target_column = "target";
  // There are sources alone (a table's column, or lines): every target is empty.
  bool sources_only = false;
};

// How sources and targets become rows.
struct SequencePairOptions {
  int64_t max_source_length = 512;  // tokens, special ones included; >= 1
  int64_t max_target_length = 512;
  std::string source_prefix = {};  // in front of each source: "translate English to German: "
  bool lower_case = false;         // of both texts
  bool overwrite_cache = false;    // encode anew even if the files beside `cache` are up to date
};

class SequencePairDataset : public Dataset {
 public:
  // InvalidArgument for files with different numbers of lines (naming both), columns that are not
  // there, text that is not UTF-8 (path:line), no pair at all, lengths that leave no room.
  static StatusOr<std::shared_ptr<const SequencePairDataset>> Open(
      const SequencePairFiles& files, const Tokenizer& tokenizer, const std::string& cache,
      const SequencePairOptions& options = {});

  int64_t size() const override { return tokens_->num_documents() / 2; }
  // Of a batch without samples: tensors without rows.
  StatusOr<Batch> MakeBatch(std::span<const Sample> samples) const override;

  // Tokens of pair `index`; for sorting and reports.
  int64_t source_length(int64_t index) const { return Length(2 * index); }
  int64_t target_length(int64_t index) const { return Length(2 * index + 1); }
  bool reused_cache() const { return reused_; }

 private:
  SequencePairDataset(std::shared_ptr<const IndexedDataset> tokens, int64_t pad_id, bool reused)
      : tokens_(std::move(tokens)), pad_id_(pad_id), reused_(reused) {}
  int64_t Length(int64_t document) const {
    return tokens_->document_begin(document + 1) - tokens_->document_begin(document);
  }

  std::shared_ptr<const IndexedDataset> tokens_;  // source, target, source, target, ...
  int64_t pad_id_;
  bool reused_;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_SEQUENCE_PAIRS_SEQUENCE_PAIR_DATASET_H_
