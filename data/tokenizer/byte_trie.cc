// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/byte_trie.h"

#include <algorithm>

namespace tessera::data {

ByteTrie::ByteTrie(std::vector<Entry> entries) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.first < b.first; });
  units_.resize(257);
  units_[kRoot].parent = kNoParent;
  // A node and the entries [begin, end) below it, which agree in their first `depth` bytes.
  struct Work {
    int32_t node;
    size_t begin, end, depth;
  };
  std::vector<Work> open = {{kRoot, 0, entries.size(), 0}};
  std::vector<uint8_t> bytes;
  std::vector<size_t> begins;
  while (!open.empty()) {
    auto [node, begin, end, depth] = open.back();
    open.pop_back();
    for (; begin < end && entries[begin].first.size() == depth; ++begin) {
      if (depth > 0) units_[static_cast<size_t>(node)].id = entries[begin].second;
    }
    bytes.clear();
    begins.clear();
    for (size_t i = begin; i < end; ++i) {
      const auto byte = static_cast<uint8_t>(entries[i].first[depth]);
      if (!bytes.empty() && bytes.back() == byte) continue;
      bytes.push_back(byte);
      begins.push_back(i);
    }
    if (bytes.empty()) continue;
    begins.push_back(end);
    const int32_t base = FindBase(bytes);
    units_[static_cast<size_t>(node)].base = base;
    for (size_t i = 0; i < bytes.size(); ++i) {
      const int32_t child = base + bytes[i];
      units_[static_cast<size_t>(child)].parent = node;
      open.push_back({child, begins[i], begins[i + 1], depth + 1});
    }
  }
}

int32_t ByteTrie::FindBase(const std::vector<uint8_t>& bytes) {
  while (units_[first_free_].parent != kFree) ++first_free_;
  size_t tried = 0;
  size_t taken = 0;
  for (size_t at = std::max(first_free_, size_t{bytes[0]} + 1);; ++at) {
    ++tried;
    const size_t base = at - bytes[0];
    if (units_.size() < base + 513) units_.resize(2 * units_.size() + 513);
    if (units_[at].parent != kFree) {
      ++taken;
      continue;
    }
    const bool fits = std::all_of(bytes.begin(), bytes.end(), [&](uint8_t byte) {
      return units_[base + byte].parent == kFree;
    });
    if (!fits) continue;
    // What is left of a stretch that is nearly full is not worth another look.
    if (20 * taken >= 19 * tried) first_free_ = at;
    return static_cast<int32_t>(base);
  }
}

size_t ByteTrie::LongestPrefix(std::string_view text, int32_t* id) const {
  size_t length = 0;
  int32_t node = kRoot;
  for (size_t i = 0; i < text.size(); ++i) {
    node = Child(node, static_cast<uint8_t>(text[i]));
    if (node < 0) break;
    if (this->id(node) < 0) continue;
    *id = this->id(node);
    length = i + 1;
  }
  return length;
}

}  // namespace tessera::data
