// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/packed_dataset.h"

#include <algorithm>

#include "base/error.h"

namespace tessera::data {

StatusOr<std::shared_ptr<const PackedDataset>> PackedDataset::Create(
    std::shared_ptr<const IndexedDataset> data, const PackedDatasetOptions& options) {
  constexpr const char* kName = "PackedDataset";
  TESSERA_CHECK(data != nullptr, kName, "no data");
  TESSERA_CHECK(options.seq_len >= 1 && options.seq_len < (int64_t{1} << 40), kName, "seq_len ",
                options.seq_len);
  TESSERA_CHECK(options.vocab_size >= 1, kName, "vocab_size ", options.vocab_size);
  const double fraction = options.validation_fraction;
  TESSERA_CHECK(fraction >= 0 && fraction < 1, kName, "validation_fraction ", fraction);

  const int64_t total = data->num_tokens();
  const int64_t window = options.seq_len + 1;
  int64_t validation = 0;
  if (fraction > 0) {
    validation = std::max(static_cast<int64_t>(fraction * static_cast<double>(total)), window);
  }
  int64_t needed = window;
  int64_t begin = 0;
  int64_t end = total;
  if (options.part != DataPart::kAll && validation > 0) {
    needed = 2 * window;
    (options.part == DataPart::kTrain ? end : begin) = std::max<int64_t>(total - validation, 0);
  } else if (options.part == DataPart::kValidation) {
    return InvalidArgument(data->name(),
                           ": a validation fraction of 0 leaves no tokens to validate on");
  }
  if (end - begin < window || total < needed) {
    return InvalidArgument(data->name(), ": ", total, " tokens are too few: ", needed,
                           " are needed", needed == window ? "" : " for training and validation",
                           " with a sequence length of ", options.seq_len);
  }
  return std::shared_ptr<const PackedDataset>(
      new PackedDataset(std::move(data), options, begin, end));
}

Status ReadWindow(const IndexedDataset& data, int64_t position, int64_t vocab_size,
                  const SampleRow& row) {
  const size_t length = row.input_ids.size();
  data.Read(position, row.input_ids);
  std::copy(row.input_ids.begin() + 1, row.input_ids.end(), row.targets.begin());
  data.Read(position + static_cast<int64_t>(length), row.targets.last(1));
  for (size_t t = 0; t <= length; ++t) {
    const int64_t id = t < length ? row.input_ids[t] : row.targets[length - 1];
    if (id < 0 || id >= vocab_size) {
      const int64_t at = position + static_cast<int64_t>(t);
      const std::string byte =
          data.is_named_by_text() ? "" : Concat(" (byte ", data.ByteOffset(at), ")");
      return InvalidArgument(data.name(), ": token id ", id, " at position ", at, byte,
                             " is beyond the vocabulary of ", vocab_size);
    }
  }
  return OkStatus();
}

Status PackedDataset::Fill(int64_t index, const SampleRow& row) const {
  TESSERA_CHECK(index >= 0 && index < size(), "PackedDataset::Fill", "sample ", index, " of ",
                size());
  const int64_t position = begin_ + index * options_.seq_len;
  TESSERA_RETURN_IF_ERROR(ReadWindow(*data_, position, options_.vocab_size, row));
  if (options_.reset_at_documents) MarkDocuments(position, row);
  return OkStatus();
}

void PackedDataset::MarkDocuments(int64_t position, const SampleRow& row) const {
  int64_t document = data_->DocumentAt(position);
  int64_t next = data_->document_begin(document + 1);
  int64_t number = 0;
  int64_t start = position;
  for (int64_t t = 0; t < options_.seq_len; ++t) {
    const int64_t at = position + t;
    if (at == next) {
      document = data_->DocumentAt(at);
      next = data_->document_begin(document + 1);
      start = at;
      ++number;
    }
    row.position_ids[t] = at - start;
    row.document_ids[t] = number;
    if (at + 1 == next) row.targets[t] = kIgnoreLabel;
  }
}

}  // namespace tessera::data
