// SPDX-License-Identifier: Apache-2.0
// The merge rules of a byte-pair encoding, and their application to one word.
//
//   BpeMerges merges;
//   merges.Add(/*left=*/a, /*right=*/b, /*rank=*/0, /*result=*/ab);
//   std::vector<int32_t> ids = {a, b, b};
//   merges.Apply(&ids);   // {ab, b}
//
// The pair of neighbours with the lowest rank is merged, the leftmost first among equals, until no
// neighbours have a rule (R. Sennrich, B. Haddow, A. Birch, "Neural machine translation of rare
// words with subword units", ACL 2016). Time is O(n^2) for short words, which is the faster way
// there, and O(n log n) for long ones, so that a megabyte without a space does no harm.
#ifndef TESSERA_DATA_TOKENIZER_BPE_MERGES_H_
#define TESSERA_DATA_TOKENIZER_BPE_MERGES_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tessera::data {

class BpeMerges {
 public:
  static constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();

  struct Rule {
    int32_t rank;    // kNoRank where the pair has no rule
    int32_t result;  // the id that takes the pair's place
  };

  // Makes room for `count` rules.
  explicit BpeMerges(size_t count = 0);

  // Asks for the memory of the rule of a pair that is soon to be added.
  void Prefetch(int32_t left, int32_t right) const {
    __builtin_prefetch(&slots_[Home(Key(left, right))]);
  }

  // Ids and ranks >= 0, rank < kNoRank. A second rule for the same pair replaces the first.
  void Add(int32_t left, int32_t right, int32_t rank, int32_t result);

  Rule Find(int32_t left, int32_t right) const {
    const uint64_t key = Key(left, right);
    for (size_t i = Home(key);; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.key == key) return slot.rule;
      if (slot.key == kEmpty) return {kNoRank, -1};
    }
  }

  // Merges within `ids` until no rule applies. Safe from several threads.
  void Apply(std::vector<int32_t>* ids) const;

  // The same; (*parts)[result] becomes the last pair of neighbours, merged or not, that had a rule
  // with this result.
  using Parts = std::unordered_map<int32_t, std::pair<int32_t, int32_t>>;
  void Apply(std::vector<int32_t>* ids, Parts* parts) const { ApplyLong(ids, parts); }

  // The same on an array of *n <= kMaxShort ids; *n becomes the number left.
  static constexpr int kMaxShort = 64;
  void ApplyShort(int32_t* ids, int* n) const;

 private:
  struct Slot {
    uint64_t key;
    Rule rule;
  };
  static constexpr uint64_t kEmpty = ~uint64_t{0};

  static uint64_t Key(int32_t left, int32_t right) {
    return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
  }
  size_t Home(uint64_t key) const {
    return static_cast<size_t>((key ^ (key >> 29)) * 0x9E3779B97F4A7C15u >> 20) & mask_;
  }
  void Insert(const Slot& slot);
  void Grow();
  void ApplyLong(std::vector<int32_t>* ids, Parts* parts) const;  // nullptr: not asked for

  std::vector<Slot> slots_;  // open addressing, at most half full
  size_t mask_ = 0;
  size_t count_ = 0;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_BPE_MERGES_H_
