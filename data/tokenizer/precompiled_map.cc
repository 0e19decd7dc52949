// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/precompiled_map.h"

#include <cstring>

namespace tessera::data {
namespace {

// A unit of the trie: either a value (the top bit set) or a node with its label, the offset of its
// children, and whether a value hangs below it.
constexpr uint32_t kValueBit = 0x80000000u;

bool IsValue(uint32_t unit) { return (unit & kValueBit) != 0; }
bool HasValue(uint32_t unit) { return ((unit >> 8) & 1) != 0; }
uint32_t Label(uint32_t unit) { return unit & (kValueBit | 0xFFu); }
uint32_t Offset(uint32_t unit) { return (unit >> 10) << ((unit & 0x200u) >> 6); }

}  // namespace

bool PrecompiledMap::Parse(std::string_view bytes) {
  uint32_t trie_bytes = 0;
  if (bytes.size() <= sizeof(trie_bytes)) return false;
  std::memcpy(&trie_bytes, bytes.data(), sizeof(trie_bytes));
  bytes.remove_prefix(sizeof(trie_bytes));
  if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes >= bytes.size()) return false;
  units_.resize(trie_bytes / 4);
  std::memcpy(units_.data(), bytes.data(), trie_bytes);
  texts_ = std::string(bytes.substr(trie_bytes));
  if (texts_.back() != '\0') return false;
  // Children lie within an aligned block of 256 units, so that the block's end decides.
  for (size_t i = 0; i < units_.size(); ++i) {
    const uint32_t unit = units_[i];
    if (IsValue(unit)) {
      if ((unit & ~kValueBit) >= texts_.size()) return false;
    } else if (((i ^ Offset(unit)) | 0xFFu) >= units_.size()) {
      return false;
    } else if (HasValue(unit) && !IsValue(units_[i ^ Offset(unit)])) {
      return false;
    }
  }
  return !IsValue(units_[0]);
}

size_t PrecompiledMap::Find(std::string_view text, bool shortest, std::string_view* to) const {
  size_t length = 0;
  if (units_.empty()) return 0;
  size_t node = Offset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte == 0) break;  // label 0 leads to a value
    node ^= byte;
    const uint32_t unit = units_[node];
    if (Label(unit) != byte) break;
    node ^= Offset(unit);
    if (!HasValue(unit)) continue;
    *to = std::string_view(texts_.c_str() + (units_[node] & ~kValueBit));
    length = i + 1;
    if (shortest) break;
  }
  return length;
}

size_t PrecompiledMap::LongestPrefix(std::string_view text, std::string_view* to) const {
  return Find(text, false, to);
}

size_t PrecompiledMap::ShortestPrefix(std::string_view text, std::string_view* to) const {
  return Find(text, true, to);
}

}  // namespace tessera::data
