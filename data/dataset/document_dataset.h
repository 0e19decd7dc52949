// SPDX-License-Identifier: Apache-2.0
// Language-modelling samples of one document each, of any length: batches are padded.
//
//   TESSERA_ASSIGN_OR_RETURN(auto train, DocumentDataset::Create(data, {.seq_len = 1024,
//       .vocab_size = 50257, .part = DataPart::kTrain, .validation_fraction = 0.05}));
//
// A sample has the tokens of a document but the last as inputs and those one further as targets; a
// document with more than seq_len + 1 tokens is so many samples of seq_len as it takes, so that
// each of its tokens but the first is predicted once. One of a single token has none. The parts are
// cut between documents. What tokens are checked for is as in packed_dataset.h.
#ifndef TESSERA_DATA_DATASET_DOCUMENT_DATASET_H_
#define TESSERA_DATA_DATASET_DOCUMENT_DATASET_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "data/dataset/packed_dataset.h"

namespace tessera::data {

class DocumentDataset : public TokenDataset {
 public:
  // Of `options`, reset_at_documents must be false. InvalidArgument where the part has no sample:
  // of a fraction, one of the documents that have one is in either part.
  static StatusOr<std::shared_ptr<const DocumentDataset>> Create(
      std::shared_ptr<const IndexedDataset> data, const PackedDatasetOptions& options);

  int64_t size() const override { return first_sample_.back(); }
  int64_t seq_len() const override { return options_.seq_len; }
  int64_t length(int64_t index) const override;
  bool has_document_ids() const override { return false; }
  Status Fill(int64_t index, const SampleRow& row) const override;

 private:
  DocumentDataset(std::shared_ptr<const IndexedDataset> data, const PackedDatasetOptions& options,
                  int64_t begin, int64_t end);
  struct Window {
    int64_t position;  // in the stream
    int64_t length;
  };
  Window WindowOf(int64_t index) const;

  std::shared_ptr<const IndexedDataset> data_;
  PackedDatasetOptions options_;
  int64_t first_document_;
  std::vector<int64_t> first_sample_;  // of each document, and behind the last
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_DATASET_DOCUMENT_DATASET_H_
