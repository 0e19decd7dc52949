// SPDX-License-Identifier: Apache-2.0
// `tessera corpus dedup`: finds documents that a corpus has twice, or nearly twice.
#ifndef TESSERA_CORPUS_DEDUP_DEDUP_H_
#define TESSERA_CORPUS_DEDUP_DEDUP_H_

#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/status.h"
#include "corpus/engine/document_pass.h"

namespace tessera::corpus {

struct DedupOptions : FilterFiles {
  std::string by = "near";
  double threshold = 0.9;
  std::string keep = "first";
  std::string pairs;
  int64_t permutations = 128;
  std::optional<int64_t> rows;
  std::vector<std::string> reference;
  std::string fingerprints;

  static const OptionTable& Table();
};

StatusOr<Counts> RunDedup(const DedupOptions& options, const RunContext& context);

// What RunDedup does by `near`, and by all else.
StatusOr<Counts> DropNearDuplicates(const DedupOptions& options, const RunContext& context);
StatusOr<Counts> DropExactDuplicates(const DedupOptions& options, const RunContext& context);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_DEDUP_DEDUP_H_
