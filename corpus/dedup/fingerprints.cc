// SPDX-License-Identifier: Apache-2.0
#include "corpus/dedup/fingerprints.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

namespace tessera::corpus {
namespace {

constexpr int64_t kEntriesAtOnce = 4096;

template <typename T>
void AppendBytes(const T* values, size_t count, std::string* out) {
  out->append(reinterpret_cast<const char*>(values), count * sizeof(T));
}

FingerprintHead HeadAt(const char* entry) {
  FingerprintHead head;
  std::memcpy(&head, entry, sizeof(head));
  return head;
}

}  // namespace

void AddFingerprint(const Document& document, const MinHash& hash, ShingleReader* reader,
                    std::vector<uint64_t>* shingles, std::vector<std::string>& files) {
  reader->Read(document.text(), shingles);
  MakeSet(shingles);
  const std::string id = document.id();
  const FingerprintHead head = {.number = document.number,
                                .num_shingles = static_cast<uint32_t>(shingles->size()),
                                .id_bytes = static_cast<uint32_t>(id.size()),
                                .text_bytes = static_cast<uint32_t>(document.text().size())};
  std::vector<uint32_t> signature(static_cast<size_t>(hash.permutations()));
  hash.Sign(*shingles, signature.data());
  AppendBytes(&head, 1, &files[0]);
  AppendBytes(signature.data(), signature.size(), &files[0]);
  AppendBytes(shingles->data(), shingles->size(), &files[1]);
  files[2] += id;
}

std::vector<std::string> FingerprintSet::Files(const std::string& prefix) {
  return {prefix + ".signatures", prefix + ".shingles", prefix + ".ids"};
}

StatusOr<FingerprintSet> FingerprintSet::Open(const std::string& prefix, int64_t permutations,
                                              const std::string& scratch) {
  const std::vector<std::string> files = Files(prefix);
  TESSERA_ASSIGN_OR_RETURN(RandomFile signatures, RandomFile::Open(files[0]));
  TESSERA_ASSIGN_OR_RETURN(RandomFile shingles, RandomFile::Open(files[1]));
  TESSERA_ASSIGN_OR_RETURN(RandomFile ids, RandomFile::Open(files[2]));
  const int64_t entry_bytes = static_cast<int64_t>(sizeof(FingerprintHead)) + 4 * permutations;
  const int64_t size = signatures.size() / entry_bytes;
  TESSERA_ASSIGN_OR_RETURN(
      MappedBytes offsets,
      MappedBytes::Create(scratch, size * static_cast<int64_t>(sizeof(Offsets))));
  FingerprintSet set(std::move(signatures), std::move(shingles), std::move(ids),
                     std::move(offsets));
  set.size_ = size;
  set.entry_bytes_ = entry_bytes;
  const std::span<Offsets> all = set.offsets_.As<Offsets>();
  Offsets at = {0, 0};
  for (int64_t first = 0; first < size; first += kEntriesAtOnce) {
    const int64_t count = std::min(kEntriesAtOnce, size - first);
    TESSERA_ASSIGN_OR_RETURN(const std::vector<char> entries, set.Entries(first, count));
    for (int64_t i = 0; i < count; ++i) {
      const FingerprintHead head = HeadAt(entries.data() + i * entry_bytes);
      all[static_cast<size_t>(first + i)] = at;
      at.shingles += int64_t{8} * head.num_shingles;
      at.id += head.id_bytes;
    }
  }
  if (at.shingles != set.shingles_.size() || at.id != set.ids_.size() ||
      size * entry_bytes != set.signatures_.size()) {
    return DataLoss(prefix, ": the files of fingerprints do not fit together");
  }
  return set;
}

StatusOr<std::vector<char>> FingerprintSet::Entries(int64_t first, int64_t count) const {
  return signatures_.ReadAll<char>(first * entry_bytes_, count * entry_bytes_);
}

StatusOr<FingerprintHead> FingerprintSet::Head(int64_t index) const {
  FingerprintHead head;
  TESSERA_RETURN_IF_ERROR(signatures_.Read(index * entry_bytes_, &head, sizeof(head)));
  return head;
}

StatusOr<std::vector<uint64_t>> FingerprintSet::Shingles(int64_t index) const {
  TESSERA_ASSIGN_OR_RETURN(const FingerprintHead head, Head(index));
  const Offsets at = offsets_.As<Offsets>()[static_cast<size_t>(index)];
  return shingles_.ReadAll<uint64_t>(at.shingles, head.num_shingles);
}

StatusOr<std::string> FingerprintSet::Id(int64_t index) const {
  TESSERA_ASSIGN_OR_RETURN(const FingerprintHead head, Head(index));
  std::string id(head.id_bytes, '\0');
  TESSERA_RETURN_IF_ERROR(
      ids_.Read(offsets_.As<Offsets>()[static_cast<size_t>(index)].id, id.data(), id.size()));
  return id;
}

Status FingerprintSet::AppendTo(int64_t index, std::vector<std::string>& files) const {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<char> entry, Entries(index, 1));
  files[0].append(entry.data(), entry.size());
  const FingerprintHead head = HeadAt(entry.data());
  const Offsets at = offsets_.As<Offsets>()[static_cast<size_t>(index)];
  TESSERA_ASSIGN_OR_RETURN(const std::vector<char> shingles,
                           shingles_.ReadAll<char>(at.shingles, int64_t{8} * head.num_shingles));
  files[1].append(shingles.data(), shingles.size());
  TESSERA_ASSIGN_OR_RETURN(const std::vector<char> id, ids_.ReadAll<char>(at.id, head.id_bytes));
  files[2].append(id.data(), id.size());
  return OkStatus();
}

nlohmann::json FingerprintSettings(int64_t permutations) {
  return {{"format", 1}, {"permutations", permutations}, {"shingle_words", kShingleWords}};
}

}  // namespace tessera::corpus
