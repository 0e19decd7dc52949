// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/sample_collation.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "core/batch_keys.h"

namespace tessera::data {

Batch BatchOf(Bundle tensors) {
  Batch batch;
  const std::string* first = nullptr;
  for (const auto& [name, t] : tensors.entries()) {
    TESSERA_CHECK(t.ndim() > 0, "BatchOf", "'", name, "' has no rows: ", t);
    if (first == nullptr) batch.rows = t.size(0);
    TESSERA_CHECK(t.size(0) == batch.rows, "BatchOf", "'", name, "' has ", t.size(0), " rows, '",
                  first == nullptr ? name : *first, "' has ", batch.rows);
    if (first == nullptr) first = &name;
  }
  batch.tokens = tensors.has(keys::kInputIds) ? tensors.at(keys::kInputIds).numel() : batch.rows;
  batch.targets = batch.rows;
  const Tensor targets =
      tensors.has(keys::kTargets) ? tensors.at(keys::kTargets) : tensors.get(keys::kLabels);
  if (targets.defined() && targets.dtype() == DType::kInt64) {
    const std::vector<int64_t> values = targets.ToVector<int64_t>();
    batch.targets = std::ssize(values) - std::count(values.begin(), values.end(), kIgnoreLabel);
  }
  batch.tensors = std::move(tensors);
  return batch;
}

StatusOr<Batch> StackSamples(std::span<const Bundle> samples) {
  Bundle stacked;
  if (samples.empty()) return BatchOf(std::move(stacked));
  for (const Bundle& sample : samples) {
    if (sample.entries().size() != samples[0].entries().size()) {
      return InvalidArgument("a sample has ", sample.entries().size(), " tensors, another has ",
                             samples[0].entries().size());
    }
  }
  for (const auto& [name, like] : samples[0].entries()) {
    Shape shape = {std::ssize(samples)};
    for (const int64_t size : like.shape()) shape.push_back(size);
    const Tensor all = Empty(shape, like.dtype());
    for (int64_t r = 0; r < std::ssize(samples); ++r) {
      const Tensor* const t = samples[static_cast<size_t>(r)].FindNamed(name);
      if (t == nullptr) return InvalidArgument("a sample has no '", name, "'");
      if (t->shape() != like.shape() || t->dtype() != like.dtype()) {
        return InvalidArgument("'", name, "' is ", *t, " in a sample and ", like, " in another");
      }
      CopyInto(all.AsStrided(like.shape(), ContiguousStrides(like.shape()),
                             all.offset() + r * like.numel()),
               *t);
    }
    stacked.SetNamed(name, all);
  }
  return BatchOf(std::move(stacked));
}

}  // namespace tessera::data
