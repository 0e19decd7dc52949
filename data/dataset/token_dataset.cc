#include "data/dataset/token_dataset.h"

#include <algorithm>

#include "core/error.h"

namespace tessera::data {

int64_t Batch::num_targets() const {
  return std::ssize(labels) - std::count(labels.begin(), labels.end(), kIgnoreLabel);
}

absl::StatusOr<Batch> MakeBatch(const TokenDataset& dataset, std::span<const int64_t> indices) {
  Batch batch;
  batch.rows = std::ssize(indices);
  batch.seq_len = dataset.seq_len();
  const auto elements = static_cast<size_t>(batch.rows * batch.seq_len);
  batch.input_ids.resize(elements);
  batch.labels.resize(elements);
  if (dataset.has_document_ids()) {
    batch.position_ids.resize(elements);
    batch.document_ids.resize(elements);
  }
  for (int64_t r = 0; r < batch.rows; ++r) {
    TESSERA_CHECK(indices[r] >= 0 && indices[r] < dataset.size(), "MakeBatch", "sample ",
                  indices[r], " of ", dataset.size());
    const auto part = [&](std::vector<int64_t>& values) {
      if (values.empty()) return std::span<int64_t>();
      return std::span<int64_t>(values).subspan(static_cast<size_t>(r * batch.seq_len),
                                                static_cast<size_t>(batch.seq_len));
    };
    const SampleRow row{part(batch.input_ids), part(batch.labels), part(batch.position_ids),
                        part(batch.document_ids)};
    TESSERA_RETURN_IF_ERROR(dataset.Fill(indices[r], row));
  }
  return batch;
}

}  // namespace tessera::data
