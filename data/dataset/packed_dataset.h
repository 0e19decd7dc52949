// SPDX-License-Identifier: Apache-2.0
// Language-modelling samples: consecutive windows over the stream of all documents.
//
//   TESSERA_ASSIGN_OR_RETURN(auto train, PackedDataset::Create(data, {.seq_len = 1024,
//       .vocab_size = 50257, .part = DataPart::kTrain, .validation_fraction = 0.05}));
//
// Sample i has the tokens i*seq_len ... i*seq_len + seq_len - 1 of its part as inputs and those one
// further as targets, so each token but the first is predicted once. A rest that fills no window is
// left out. Nothing is kept in memory; tokens are read from the mapped file when a sample is asked
// for, and checked then against the vocabulary: a batch with an id beyond it gives a status that
// names the id, its position and file.
#ifndef TESSERA_DATA_DATASET_PACKED_DATASET_H_
#define TESSERA_DATA_DATASET_PACKED_DATASET_H_

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "data/dataset/indexed_dataset.h"
#include "data/dataset/token_dataset.h"

namespace tessera::data {

enum class DataPart {
  kAll,
  kTrain,       // without the last validation_fraction of the tokens
  kValidation,  // only those
};

// How tokens are cut into samples.
struct PackedDatasetOptions {
  int64_t seq_len = 0;     // >= 1
  int64_t vocab_size = 0;  // ids must be in [0, vocab_size)
  DataPart part = DataPart::kAll;
  // The validation part has max(fraction * tokens, seq_len + 1) tokens, so that it holds a sample
  // however small the data is; 0 <= fraction < 1. With 0, kTrain is kAll and kValidation a failure.
  double validation_fraction = 0.0;
  // Each document is by itself within its window: position ids restart, document ids are given (for
  // a mask of kind "document ids"), and the target that would lead into the next document is
  // kIgnoreLabel.
  bool reset_at_documents = false;
};

// The tokens from stream position `position` on as inputs, those one further as targets, checked
// against the vocabulary.
Status ReadWindow(const IndexedDataset& data, int64_t position, int64_t vocab_size,
                  const SampleRow& row);

class PackedDataset : public TokenDataset {
 public:
  // InvalidArgument if the part has fewer than seq_len + 1 tokens, saying how many are needed.
  // Throws Error for options out of their range.
  static StatusOr<std::shared_ptr<const PackedDataset>> Create(
      std::shared_ptr<const IndexedDataset> data, const PackedDatasetOptions& options);

  int64_t size() const override { return (end_ - begin_ - 1) / options_.seq_len; }
  int64_t seq_len() const override { return options_.seq_len; }
  bool has_document_ids() const override { return options_.reset_at_documents; }
  Status Fill(int64_t index, const SampleRow& row) const override;

  // The part's range of stream positions.
  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }

 private:
  PackedDataset(std::shared_ptr<const IndexedDataset> data, const PackedDatasetOptions& options,
                int64_t begin, int64_t end)
      : data_(std::move(data)), options_(options), begin_(begin), end_(end) {}
  void MarkDocuments(int64_t position, const SampleRow& row) const;

  std::shared_ptr<const IndexedDataset> data_;
  PackedDatasetOptions options_;
  int64_t begin_;
  int64_t end_;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_DATASET_PACKED_DATASET_H_
