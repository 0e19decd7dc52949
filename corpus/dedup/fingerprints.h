// SPDX-License-Identifier: Apache-2.0
// What of documents is kept to find those that are alike: signatures, shingles and names, in files.
//
//   run.outputs = FingerprintSet::Files("work/fingerprints");
//   run.work = ... AddFingerprint(document, hash, &reader, &shingles, result->outputs) ...
//   TESSERA_ASSIGN_OR_RETURN(auto set, FingerprintSet::Open("work/fingerprints", "work"));
//   TESSERA_ASSIGN_OR_RETURN(std::vector<uint64_t> shingles, set.Shingles(0));
//
// PREFIX.signatures has an entry of fixed size for each document, PREFIX.shingles their sets
// of shingles, PREFIX.ids their names. Files that are put one behind the other are one set. A
// folder of them with settings.json, which says how they were made, can be saved and loaded.
#ifndef TESSERA_CORPUS_DEDUP_FINGERPRINTS_H_
#define TESSERA_CORPUS_DEDUP_FINGERPRINTS_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "corpus/dedup/minhash.h"
#include "corpus/dedup/shingles.h"
#include "corpus/engine/scratch.h"
#include "corpus/io/document.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::corpus {

// The beginning of an entry; the signature follows.
struct FingerprintHead {
  int64_t number = 0;         // Document::number
  uint32_t num_shingles = 0;  // different ones
  uint32_t id_bytes = 0;
  uint32_t text_bytes = 0;
  uint32_t unused = 0;
};

// Appends a document to the three files' bytes. `reader` and `shingles` are room to work in.
void AddFingerprint(const Document& document, const MinHash& hash, ShingleReader* reader,
                    std::vector<uint64_t>* shingles, std::vector<std::string>& files);

class FingerprintSet {
 public:
  static std::vector<std::string> Files(const std::string& prefix);
  // `scratch` is a folder for what is worked out of them.
  static StatusOr<FingerprintSet> Open(const std::string& prefix, int64_t permutations,
                                       const std::string& scratch);

  int64_t size() const { return size_; }
  // From here on the first documents alone are there.
  void Shorten(int64_t size) { size_ = std::min(size_, size); }
  int64_t entry_bytes() const { return entry_bytes_; }
  // Whole entries, one behind the other.
  StatusOr<std::vector<char>> Entries(int64_t first, int64_t count) const;
  StatusOr<FingerprintHead> Head(int64_t index) const;
  // Sorted, without repetitions.
  StatusOr<std::vector<uint64_t>> Shingles(int64_t index) const;
  StatusOr<std::string> Id(int64_t index) const;
  // The three files' bytes of one document.
  Status AppendTo(int64_t index, std::vector<std::string>& files) const;

 private:
  FingerprintSet(RandomFile signatures, RandomFile shingles, RandomFile ids, MappedBytes offsets)
      : signatures_(std::move(signatures)),
        shingles_(std::move(shingles)),
        ids_(std::move(ids)),
        offsets_(std::move(offsets)) {}

  // Where a document's shingles and name begin.
  struct Offsets {
    int64_t shingles;
    int64_t id;
  };

  RandomFile signatures_, shingles_, ids_;
  MappedBytes offsets_;
  int64_t size_ = 0;
  int64_t entry_bytes_ = 0;
};

// What settings.json says of a saved set: sets are compared where it is the same.
nlohmann::json FingerprintSettings(int64_t permutations);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_DEDUP_FINGERPRINTS_H_
