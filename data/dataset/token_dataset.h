// Samples of token ids, numbered, and batches made of them.
//
//   TESSERA_ASSIGN_OR_RETURN(Batch batch, MakeBatch(*dataset, {7, 2, 9, 4}));
//   // batch.input_ids: [4, seq_len] row-major
//
// labels[t] is the token that input_ids[t] should predict: the next one, already shifted, or
// kIgnoreLabel.
#ifndef TESSERA_DATA_DATASET_TOKEN_DATASET_H_
#define TESSERA_DATA_DATASET_TOKEN_DATASET_H_

#include <cstdint>
#include <span>
#include <vector>

#include "core/status.h"

namespace tessera::data {

// A label that the loss leaves out.
inline constexpr int64_t kIgnoreLabel = -100;

// Where one sample goes; each span has seq_len elements, the last two are empty in datasets without
// document ids.
struct SampleRow {
  std::span<int64_t> input_ids;
  std::span<int64_t> labels;
  std::span<int64_t> position_ids;
  std::span<int64_t> document_ids;
};

class TokenDataset {
 public:
  virtual ~TokenDataset() = default;

  virtual int64_t size() const = 0;     // samples
  virtual int64_t seq_len() const = 0;  // tokens of each
  // Whether samples come with position ids and document ids.
  virtual bool has_document_ids() const = 0;
  // Writes sample `index` of [0, size()). Safe from several threads.
  virtual absl::Status Fill(int64_t index, const SampleRow& row) const = 0;
};

// All row-major [rows, seq_len]; the optional ones are empty where they are not used.
struct Batch {
  int64_t rows = 0;
  int64_t seq_len = 0;
  std::vector<int64_t> input_ids;
  std::vector<int64_t> labels;
  std::vector<int64_t> position_ids;  // optional: restart at 0 with each document
  std::vector<int64_t> document_ids;  // optional: 0, 1, ... within each row; attention stays inside
  std::vector<int64_t> attention_mask;  // optional: 1 for tokens, 0 for padding

  // Labels that are not kIgnoreLabel: what a mean loss is divided by.
  int64_t num_targets() const;
};

// The samples `indices` as rows, in order. Throws Error for an index outside the dataset.
absl::StatusOr<Batch> MakeBatch(const TokenDataset& dataset, std::span<const int64_t> indices);

}  // namespace tessera::data

#endif  // TESSERA_DATA_DATASET_TOKEN_DATASET_H_
