// SPDX-License-Identifier: Apache-2.0
// Pairs of documents whose 5-grams are alike: candidates by bands of their signatures, then the
// true Jaccard similarity of each.
#ifndef TESSERA_CORPUS_DEDUP_SIMILAR_PAIRS_H_
#define TESSERA_CORPUS_DEDUP_SIMILAR_PAIRS_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "corpus/dedup/fingerprints.h"
#include "corpus/dedup/minhash.h"

namespace tessera::corpus {

// Several sets as one row of documents. The last set is that of the documents in question; those
// before it are known.
class FingerprintSets {
 public:
  explicit FingerprintSets(std::vector<FingerprintSet> sets);

  int64_t size() const { return ends_.back(); }
  int64_t num_known() const { return ends_.back() - sets_.back().size(); }
  // The set of a document and its place there.
  std::pair<const FingerprintSet*, int64_t> Find(int64_t index) const;
  const std::vector<FingerprintSet>& sets() const { return sets_; }

 private:
  std::vector<FingerprintSet> sets_;
  std::vector<int64_t> ends_;
};

struct SimilarPair {
  int64_t a;  // < b
  int64_t b;
  double jaccard;
};

struct SimilarityOptions {
  double threshold = 0.9;
  Bands bands;
  std::string scratch;  // a folder of one's own
};

// In so large a group of equal bands (pages of one template) a document is compared with the
// kNeighbours before it and the first, not with all.
inline constexpr int64_t kLargeGroup = 512;
inline constexpr int64_t kNeighbours = 128;

// Visits the pairs of at least the threshold, sorted by a, then b; none of two known documents. It
// needs disk for the bands, 16 bytes each, and memory that does not grow with the documents.
Status FindSimilarPairs(const FingerprintSets& documents, const SimilarityOptions& options,
                        const std::function<Status(std::span<const SimilarPair>)>& visit);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_DEDUP_SIMILAR_PAIRS_H_
