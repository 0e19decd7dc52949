// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/document_dataset.h"

#include <algorithm>

#include "base/error.h"

namespace tessera::data {
namespace {

// Targets of a document, which its samples share out.
int64_t TargetsOf(const IndexedDataset& data, int64_t document) {
  return std::max<int64_t>(data.document_begin(document + 1) - data.document_begin(document) - 1,
                           0);
}

// The document that validation begins with: the last of those that leave it `fraction` of the
// tokens; at least one document with a target is on either side, where there are two.
int64_t FirstOfValidation(const IndexedDataset& data, double fraction) {
  const int64_t total = data.num_tokens();
  const auto held_out = static_cast<int64_t>(fraction * static_cast<double>(total));
  int64_t cut = held_out == 0 ? data.num_documents() : data.DocumentAt(total - held_out);
  const auto has_targets = [&](int64_t d) { return TargetsOf(data, d) > 0; };
  int64_t first = 0;
  int64_t last = data.num_documents() - 1;
  while (first < last && !has_targets(first)) ++first;
  while (last > first && !has_targets(last)) --last;
  cut = std::min(cut, last);
  return std::max(cut, first + 1);
}

}  // namespace

StatusOr<std::shared_ptr<const DocumentDataset>> DocumentDataset::Create(
    std::shared_ptr<const IndexedDataset> data, const PackedDatasetOptions& options) {
  constexpr const char* kName = "DocumentDataset";
  TESSERA_CHECK(data != nullptr, kName, "no data");
  TESSERA_CHECK(options.seq_len >= 1 && !options.reset_at_documents, kName, "seq_len ",
                options.seq_len);
  TESSERA_CHECK(options.vocab_size >= 1, kName, "vocab_size ", options.vocab_size);
  const double fraction = options.validation_fraction;
  TESSERA_CHECK(fraction >= 0 && fraction < 1, kName, "validation_fraction ", fraction);
  int64_t begin = 0;
  int64_t end = data->num_documents();
  if (options.part == DataPart::kTrain && fraction > 0) {
    end = std::min(end, FirstOfValidation(*data, fraction));
  } else if (options.part == DataPart::kValidation) {
    begin = fraction > 0 ? std::min(end, FirstOfValidation(*data, fraction)) : end;
  }
  std::shared_ptr<const DocumentDataset> documents(new DocumentDataset(data, options, begin, end));
  if (documents->size() == 0) {
    const bool validates = options.part == DataPart::kValidation;
    return InvalidArgument(
        data->name(), ": of ", data->num_documents(), " documents none of two tokens is left to ",
        validates ? "validate on; give val_data, or val_fraction 0" : "train on");
  }
  return documents;
}

DocumentDataset::DocumentDataset(std::shared_ptr<const IndexedDataset> data,
                                 const PackedDatasetOptions& options, int64_t begin, int64_t end)
    : data_(std::move(data)), options_(options), first_document_(begin), first_sample_({0}) {
  for (int64_t d = begin; d < end; ++d) {
    const int64_t samples = (TargetsOf(*data_, d) + options.seq_len - 1) / options.seq_len;
    first_sample_.push_back(first_sample_.back() + samples);
  }
}

DocumentDataset::Window DocumentDataset::WindowOf(int64_t index) const {
  TESSERA_CHECK(index >= 0 && index < size(), "DocumentDataset", "sample ", index, " of ", size());
  const auto behind = std::upper_bound(first_sample_.begin(), first_sample_.end(), index);
  const auto number = (behind - first_sample_.begin()) - 1;
  const int64_t document = first_document_ + number;
  const int64_t before = (index - first_sample_[static_cast<size_t>(number)]) * options_.seq_len;
  return {.position = data_->document_begin(document) + before,
          .length = std::min(options_.seq_len, TargetsOf(*data_, document) - before)};
}

int64_t DocumentDataset::length(int64_t index) const { return WindowOf(index).length; }

Status DocumentDataset::Fill(int64_t index, const SampleRow& row) const {
  return ReadWindow(*data_, WindowOf(index).position, options_.vocab_size, row);
}

}  // namespace tessera::data
