// SPDX-License-Identifier: Apache-2.0
// How samples of a program's own become batches: what map_dataset.h and stream_dataset.h share.
//
//   const auto collate = [](std::span<const Pair> pairs) -> StatusOr<Batch> {
//     return BatchOf({{keys::kInputIds, Padded(pairs)}, {keys::kTargets, TargetsOf(pairs)}});
//   };
//
// A sample may be of any type; of bundles of tensors StackSamples is a collate function as it
// stands. A failure, or an exception, of a program's function becomes one line with the sample.
#ifndef TESSERA_DATA_DATASET_SAMPLE_COLLATION_H_
#define TESSERA_DATA_DATASET_SAMPLE_COLLATION_H_

#include <exception>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "base/status.h"
#include "data/dataset/dataset.h"

namespace tessera::data {

// The batch of these tensors, whose first dimension is rows: `tokens` are the elements of
// `input_ids` (without one, the rows), `targets` those of `targets`, or else of `labels`, that are
// not kIgnoreLabel (of floats, the rows). A model that shifts `labels` has fewer targets than
// these: give it `targets`, or set the number. Throws Error where tensors differ in their rows.
Batch BatchOf(Bundle tensors);

// Tensors of one name become one with a dimension more, in front; InvalidArgument, which names the
// tensor, where samples differ in names, shapes or dtypes. (PyTorch's default_collate.)
StatusOr<Batch> StackSamples(std::span<const Bundle> samples);

// What `make` gives; `where` is what messages call the sample: "sample 17".
template <typename T>
StatusOr<T> GuardedSample(const std::string& where, const std::function<StatusOr<T>()>& make) {
  try {
    StatusOr<T> made = make();
    if (made.ok()) return made;
    return Failure(made.status().code(), where, ": ", Message(made.status()));
  } catch (const std::exception& error) {
    return Internal(where, ": ", error.what());
  }
}

}  // namespace tessera::data

#endif  // TESSERA_DATA_DATASET_SAMPLE_COLLATION_H_
