#include "data/dataset/token_dataset.h"

#include <algorithm>

#include "core/batch_keys.h"
#include "core/error.h"

namespace tessera::data {

StatusOr<Batch> TokenDataset::MakeBatch(std::span<const Sample> samples) const {
  const Shape shape = {std::ssize(samples), seq_len()};
  const Tensor none;
  const Tensor input_ids = Empty(shape, DType::kInt64);
  const Tensor targets = Empty(shape, DType::kInt64);
  const Tensor positions = has_document_ids() ? Empty(shape, DType::kInt64) : none;
  const Tensor documents = has_document_ids() ? Empty(shape, DType::kInt64) : none;
  const auto row_of = [&](const Tensor& t, int64_t r) {
    if (!t.defined()) return std::span<int64_t>();
    return std::span<int64_t>(t.data<int64_t>() + r * seq_len(), static_cast<size_t>(seq_len()));
  };
  for (int64_t r = 0; r < std::ssize(samples); ++r) {
    const int64_t index = samples[static_cast<size_t>(r)].index;
    TESSERA_CHECK(index >= 0 && index < size(), "MakeBatch", "sample ", index, " of ", size());
    TESSERA_RETURN_IF_ERROR(Fill(index, {row_of(input_ids, r), row_of(targets, r),
                                         row_of(positions, r), row_of(documents, r)}));
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
  }
  return batch;
}

}  // namespace tessera::data
