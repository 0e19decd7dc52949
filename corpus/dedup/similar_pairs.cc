// SPDX-License-Identifier: Apache-2.0
#include "corpus/dedup/similar_pairs.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <unordered_map>

#include "base/file.h"
#include "corpus/engine/hash.h"
#include "corpus/engine/scratch.h"

namespace tessera::corpus {
namespace {

constexpr int64_t kDocumentsAtOnce = 1024;
constexpr size_t kCacheBytes = size_t{16} << 20;  // of shingles, for each thread

struct BandEntry {
  uint64_t key;
  int64_t document;
  auto operator<=>(const BandEntry&) const = default;
};

struct Candidate {
  int64_t a;
  int64_t b;
  auto operator<=>(const Candidate&) const = default;
};

Status PutBands(const FingerprintSet& set, int64_t base, const Bands& bands, BucketFiles& buckets) {
  const int64_t chunks = (set.size() + kDocumentsAtOnce - 1) / kDocumentsAtOnce;
  return ParallelTasks(chunks, [&](int64_t chunk) -> Status {
    const int64_t first = chunk * kDocumentsAtOnce;
    const int64_t count = std::min(kDocumentsAtOnce, set.size() - first);
    TESSERA_ASSIGN_OR_RETURN(const std::vector<char> entries, set.Entries(first, count));
    BucketBuffer<BandEntry> buffer(buckets);
    for (int64_t i = 0; i < count; ++i) {
      const char* const entry = entries.data() + i * set.entry_bytes();
      FingerprintHead head;
      std::memcpy(&head, entry, sizeof(head));
      if (head.num_shingles == 0) continue;
      for (int64_t band = 0; band < bands.bands; ++band) {
        const char* const rows = entry + sizeof(head) + 4 * band * bands.rows;
        const uint64_t key =
            HashBytes({rows, static_cast<size_t>(4 * bands.rows)}, static_cast<uint64_t>(band));
        TESSERA_RETURN_IF_ERROR(
            buffer.Put(BucketOfHash(key, buckets.count()), {key, base + first + i}));
      }
    }
    return buffer.Flush();
  });
}

// The pairs of documents with an equal band, once for each such band.
Status PutCandidates(const BucketFiles& bands, int64_t num_documents, int64_t num_known,
                     BucketFiles& buckets) {
  return ParallelTasks(bands.count(), [&](int64_t bucket) -> Status {
    TESSERA_ASSIGN_OR_RETURN(std::vector<BandEntry> entries, bands.Take<BandEntry>(bucket));
    std::sort(entries.begin(), entries.end());
    BucketBuffer<Candidate> buffer(buckets);
    const int64_t count = std::ssize(entries);
    for (int64_t begin = 0, end = 0; begin < count; begin = end) {
      while (end < count &&
             entries[static_cast<size_t>(end)].key == entries[static_cast<size_t>(begin)].key) {
        ++end;
      }
      const bool large = end - begin > kLargeGroup;
      for (int64_t j = begin + 1; j < end; ++j) {
        const int64_t b = entries[static_cast<size_t>(j)].document;
        if (b < num_known) continue;
        const auto put = [&](int64_t i) {
          const int64_t a = entries[static_cast<size_t>(i)].document;
          return buffer.Put(BucketOfHash(~uint64_t{0} / static_cast<uint64_t>(num_documents) *
                                             static_cast<uint64_t>(a),
                                         buckets.count()),
                            {a, b});
        };
        const int64_t nearest = large ? std::max(begin, j - kNeighbours) : begin;
        if (nearest > begin) TESSERA_RETURN_IF_ERROR(put(begin));
        for (int64_t i = nearest; i < j; ++i) TESSERA_RETURN_IF_ERROR(put(i));
      }
    }
    return buffer.Flush();
  });
}

// Shingles of documents that are asked for again soon.
class ShingleCache {
 public:
  explicit ShingleCache(const FingerprintSets& documents) : documents_(documents) {}

  StatusOr<std::shared_ptr<const std::vector<uint64_t>>> Of(int64_t index) {
    if (const auto found = cache_.find(index); found != cache_.end()) return found->second;
    const auto [set, place] = documents_.Find(index);
    TESSERA_ASSIGN_OR_RETURN(std::vector<uint64_t> shingles, set->Shingles(place));
    bytes_ += shingles.size() * sizeof(uint64_t);
    if (bytes_ > kCacheBytes) {
      cache_.clear();
      bytes_ = 0;
    }
    auto shared = std::make_shared<const std::vector<uint64_t>>(std::move(shingles));
    cache_.emplace(index, shared);
    return shared;
  }

 private:
  const FingerprintSets& documents_;
  std::unordered_map<int64_t, std::shared_ptr<const std::vector<uint64_t>>> cache_;
  size_t bytes_ = 0;
};

StatusOr<std::vector<SimilarPair>> Compare(const FingerprintSets& documents,
                                           std::vector<Candidate> candidates, double threshold) {
  std::sort(candidates.begin(), candidates.end());
  candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
  std::vector<SimilarPair> pairs;
  ShingleCache cache(documents);
  for (const auto& [a, b] : candidates) {
    TESSERA_ASSIGN_OR_RETURN(const auto of_a, cache.Of(a));
    TESSERA_ASSIGN_OR_RETURN(const auto of_b, cache.Of(b));
    // Sets of very different sizes have too little in common, whatever they hold.
    const auto [fewer, more] = std::minmax({of_a->size(), of_b->size()});
    if (static_cast<double>(fewer) / static_cast<double>(more) < threshold) continue;
    const double jaccard = Jaccard(*of_a, *of_b);
    if (jaccard >= threshold) pairs.push_back({a, b, jaccard});
  }
  return pairs;
}

}  // namespace

FingerprintSets::FingerprintSets(std::vector<FingerprintSet> sets) : sets_(std::move(sets)) {
  int64_t end = 0;
  for (const FingerprintSet& set : sets_) ends_.push_back(end += set.size());
}

std::pair<const FingerprintSet*, int64_t> FingerprintSets::Find(int64_t index) const {
  const auto set =
      static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
  return {&sets_[set], index - (ends_[set] - sets_[set].size())};
}

Status FindSimilarPairs(const FingerprintSets& documents, const SimilarityOptions& options,
                        const std::function<Status(std::span<const SimilarPair>)>& visit) {
  if (documents.size() == 0) return OkStatus();
  const int64_t bytes = documents.size() * options.bands.bands * int64_t{sizeof(BandEntry)};
  const int64_t num_buckets = BucketsFor(bytes);
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<BucketFiles> bands,
                           BucketFiles::Create(JoinPath(options.scratch, "bands"), num_buckets));
  int64_t base = 0;
  for (const FingerprintSet& set : documents.sets()) {
    TESSERA_RETURN_IF_ERROR(PutBands(set, base, options.bands, *bands));
    base += set.size();
  }
  TESSERA_ASSIGN_OR_RETURN(
      const std::unique_ptr<BucketFiles> candidates,
      BucketFiles::Create(JoinPath(options.scratch, "candidates"), num_buckets));
  TESSERA_RETURN_IF_ERROR(
      PutCandidates(*bands, documents.size(), documents.num_known(), *candidates));
  bands = nullptr;
  // As many buckets at once as keep the threads at work, visited in their order.
  constexpr int64_t kAtOnce = 32;
  for (int64_t first = 0; first < num_buckets; first += kAtOnce) {
    const int64_t count = std::min(kAtOnce, num_buckets - first);
    std::vector<std::vector<SimilarPair>> found(static_cast<size_t>(count));
    TESSERA_RETURN_IF_ERROR(ParallelTasks(count, [&](int64_t i) -> Status {
      TESSERA_ASSIGN_OR_RETURN(std::vector<Candidate> bucket,
                               candidates->Take<Candidate>(first + i));
      TESSERA_ASSIGN_OR_RETURN(found[static_cast<size_t>(i)],
                               Compare(documents, std::move(bucket), options.threshold));
      return OkStatus();
    }));
    for (const auto& pairs : found) TESSERA_RETURN_IF_ERROR(visit(pairs));
  }
  return OkStatus();
}

}  // namespace tessera::corpus
