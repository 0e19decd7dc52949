// SPDX-License-Identifier: Apache-2.0
// Which id a piece of a vocabulary has, without a copy of the pieces: loading a tokenizer is mostly
// this.
//
//   const VocabEntries vocab = {{"a", 0}, {"b", 1}};
//   const VocabIndex index(&vocab);
//   index.Find("b");   // 1
#ifndef TESSERA_DATA_TOKENIZER_VOCAB_INDEX_H_
#define TESSERA_DATA_TOKENIZER_VOCAB_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::data {

// Ids of tokens are below, in files of any kind.
inline constexpr int64_t kMaxTokenId = 1 << 22;

// Pieces and their ids, in any order.
using VocabEntries = std::vector<std::pair<std::string, int32_t>>;

class VocabIndex {
 public:
  // Knows no piece.
  VocabIndex() = default;
  // The vocabulary outlives the index, and does not change.
  explicit VocabIndex(const VocabEntries* vocab);

  // Of equal pieces the first one's.
  std::optional<int32_t> Find(std::string_view piece) const;
  // The same of each, -1 where there is none: several times as fast as one by one, since memory is
  // asked for ahead. At most kAtOnce pieces, as many ids.
  static constexpr size_t kAtOnce = 64;
  void FindAll(std::span<const std::string_view> pieces, int32_t* ids) const;
  // A piece that the vocabulary has more than once; nullptr: none.
  const std::string* twice() const { return twice_; }

 private:
  static constexpr int32_t kEmpty = -1;
  // Open addressing, at most half full. Most that are other pieces differ in `hash`.
  struct Slot {
    uint32_t hash;
    int32_t place = kEmpty;  // in the vocabulary
  };
  size_t Home(uint64_t hash) const { return static_cast<size_t>(hash >> 20) & (slots_.size() - 1); }
  int32_t IdAt(const Slot& slot) const;
  // The piece's slot, or the empty one where it would be.
  size_t SlotOf(std::string_view piece, uint64_t hash) const;

  const VocabEntries* vocab_ = nullptr;
  const std::string* twice_ = nullptr;
  std::vector<Slot> slots_;
};

// The pairs of a JSON object of whole numbers >= 0, which vocab.json is, many times faster than by
// way of a tree. nullopt for any other text, whatever is wrong with it: json_text.h says what.
std::optional<VocabEntries> ReadVocabJson(std::string_view text);

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_VOCAB_INDEX_H_
