// SPDX-License-Identifier: Apache-2.0
// The character map that SentencePiece models and `Precompiled` normalizers of tokenizer.json
// carry: texts and what replaces them, in a double-array trie (as darts-clone writes it).
//
//   PrecompiledMap map;
//   if (!map.Parse(bytes)) return InvalidArgument(...);
//   std::string_view to;
//   if (size_t length = map.LongestPrefix(text, &to)) ...   // text[0, length) becomes `to`
//
// The bytes: the trie's size (uint32), the trie's units (uint32 each), then the replacements, each
// ended by a zero byte. All little-endian. Parse checks that no unit points outside.
#ifndef TESSERA_DATA_TOKENIZER_PRECOMPILED_MAP_H_
#define TESSERA_DATA_TOKENIZER_PRECOMPILED_MAP_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::data {

class PrecompiledMap {
 public:
  // False where the bytes are no such map.
  bool Parse(std::string_view bytes);

  // The length of the longest (`shortest`: the shortest) prefix of `text` that the map replaces,
  // and its replacement; 0: none.
  size_t LongestPrefix(std::string_view text, std::string_view* to) const;
  size_t ShortestPrefix(std::string_view text, std::string_view* to) const;

 private:
  size_t Find(std::string_view text, bool shortest, std::string_view* to) const;

  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_PRECOMPILED_MAP_H_
