// SPDX-License-Identifier: Apache-2.0
// Texts and their ids in a tree over bytes, to find all that begin at a place of a text in one
// walk.
//
//   ByteTrie trie({{"a", 0}, {"abc", 1}});
//   int32_t node = ByteTrie::kRoot;
//   for (const char c : text) {
//     node = trie.Child(node, static_cast<uint8_t>(c));
//     if (node < 0) break;
//     if (trie.id(node) >= 0) ...   // text up to here
//   }
//
// A double array (J. Aoe, "An efficient digital search algorithm by using a double-array
// structure", IEEE Transactions on Software Engineering 15(9), 1989). Immutable; safe from several
// threads.
#ifndef TESSERA_DATA_TOKENIZER_BYTE_TRIE_H_
#define TESSERA_DATA_TOKENIZER_BYTE_TRIE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::data {

class ByteTrie {
 public:
  static constexpr int32_t kRoot = 0;
  using Entry = std::pair<std::string_view, int32_t>;  // an id >= 0

  // The views are not kept. Of equal texts the last counts; an empty one is left out.
  explicit ByteTrie(std::vector<Entry> entries = {});

  // The node one byte below `node`; < 0: there is none.
  int32_t Child(int32_t node, uint8_t byte) const {
    const int32_t child = units_[static_cast<size_t>(node)].base + byte;
    return units_[static_cast<size_t>(child)].parent == node ? child : -1;
  }
  // The id of the text that ends at a node; < 0: none does.
  int32_t id(int32_t node) const { return units_[static_cast<size_t>(node)].id; }

  // The length of the longest text of the tree that `text` begins with, and its id; 0: none.
  size_t LongestPrefix(std::string_view text, int32_t* id) const;

 private:
  static constexpr int32_t kFree = -1;
  static constexpr int32_t kNoParent = -2;
  struct Unit {
    int32_t base = 0;        // children are at base + byte
    int32_t parent = kFree;  // whose child this is
    int32_t id = -1;
  };
  // A base at which the places of all `bytes` are free.
  int32_t FindBase(const std::vector<uint8_t>& bytes);

  std::vector<Unit> units_;  // 256 more than the highest base
  size_t first_free_ = 1;    // nothing is looked for before it
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_BYTE_TRIE_H_
