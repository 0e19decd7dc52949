// SPDX-License-Identifier: Apache-2.0
// `tessera corpus shuffle`, `split` and `mix`: which documents stand where.
#ifndef TESSERA_CORPUS_SHUFFLE_SHUFFLE_H_
#define TESSERA_CORPUS_SHUFFLE_SHUFFLE_H_

#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/status.h"
#include "corpus/engine/document_pass.h"

namespace tessera::corpus {

// The documents sorted by a hash of the seed and their place: larger corpora than memory, by way of
// files of a few MiB each.
struct ShuffleOptions : StepFiles {
  int64_t seed = 0;

  static const OptionTable& Table();
};
StatusOr<Counts> RunShuffle(const ShuffleOptions& options, const RunContext& context);

// Every document into the part that a hash of the seed and its id says: a document is in the same
// part whatever else there is.
struct SplitOptions : StepFiles {
  std::vector<std::string> parts = {"train=0.98", "val=0.01", "test=0.01"};
  int64_t seed = 0;

  static const OptionTable& Table();
};
StatusOr<Counts> RunSplit(const SplitOptions& options, const RunContext& context);

// Of each input such a share of the documents that the output has the weights asked for; an input
// of which more is wanted than there is comes several times.
struct MixOptions : StepFiles {
  std::vector<double> weights;
  std::optional<int64_t> documents;
  int64_t seed = 0;

  static const OptionTable& Table();
};
StatusOr<Counts> RunMix(const MixOptions& options, const RunContext& context);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_SHUFFLE_SHUFFLE_H_
