// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/token_dataset.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "core/batch_keys.h"

namespace tessera::data {

Tensor TokenMask(std::span<const int64_t> lengths, int64_t columns) {
  const Tensor mask = Zeros({std::ssize(lengths), columns}, DType::kInt32);
  int32_t* row = mask.data<int32_t>();
  for (const int64_t length : lengths) {
    std::fill_n(row, length, 1);
    row += columns;
  }
  return mask;
}

int64_t TokenDataset::LongestOf(std::span<const Sample> samples) const {
  int64_t longest = samples.empty() ? seq_len() : 0;
  for (const Sample& sample : samples) {
    TESSERA_CHECK(sample.index >= 0 && sample.index < size(), "MakeBatch", "sample ", sample.index,
                  " of ", size());
    longest = std::max(longest, length(sample.index));
  }
  return longest;
}

StatusOr<Batch> TokenDataset::MakeBatch(std::span<const Sample> samples) const {
  const int64_t longest = LongestOf(samples);
  const Shape shape = {std::ssize(samples), longest};
  const Tensor none;
  const Tensor input_ids = Zeros(shape, DType::kInt64);
  const Tensor targets = Full(shape, static_cast<double>(kIgnoreLabel), DType::kInt64);
  const Tensor positions = has_document_ids() ? Zeros(shape, DType::kInt64) : none;
  const Tensor documents = has_document_ids() ? Full(shape, -1.0, DType::kInt64) : none;
  std::vector<int64_t> lengths;
  for (int64_t r = 0; r < std::ssize(samples); ++r) {
    const int64_t index = samples[static_cast<size_t>(r)].index;
    lengths.push_back(length(index));
    const auto row_of = [&](const Tensor& t) {
      if (!t.defined()) return std::span<int64_t>();
      return std::span<int64_t>(t.data<int64_t>() + r * longest,
                                static_cast<size_t>(lengths.back()));
    };
    TESSERA_RETURN_IF_ERROR(
        Fill(index, {row_of(input_ids), row_of(targets), row_of(positions), row_of(documents)}));
  }
  Batch batch;
  batch.rows = shape[0];
  batch.tokens = shape.numel();
  const int64_t* target = targets.data<int64_t>();
  batch.targets = batch.tokens - std::count(target, target + batch.tokens, kIgnoreLabel);
  batch.tensors = {{keys::kInputIds, input_ids}, {keys::kTargets, targets}};
  if (has_document_ids()) {
    batch.tensors.set(keys::kPositionIds, positions);
    batch.tensors.set(keys::kDocumentIds, CastCopy(documents, DType::kInt32));
  } else if (std::any_of(lengths.begin(), lengths.end(),
                         [&](int64_t length) { return length < longest; })) {
    batch.tensors.set(keys::kTokenMask, TokenMask(lengths, longest));
  }
  return batch;
}

}  // namespace tessera::data
