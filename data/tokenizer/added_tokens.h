// SPDX-License-Identifier: Apache-2.0
// Tokens that are found in the text before anything else is done with it: <|endoftext|> and the
// like.
//
//   AddedTokenMatcher matcher({{.content = "<|endoftext|>", .id = 50256}});
//   for (const TextPiece& piece : matcher.Split("a<|endoftext|>b", /*parse_special=*/true)) ...
//   // {"a", no id}, {"<|endoftext|>", 50256}, {"b", no id}
//
// The rules are those of Hugging Face's tokenizers: the leftmost match, among those the longest;
// tokens that are not `normalized` go first, the others are searched for in what is left.
#ifndef TESSERA_DATA_TOKENIZER_ADDED_TOKENS_H_
#define TESSERA_DATA_TOKENIZER_ADDED_TOKENS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::data {

struct AddedToken {
  std::string content;  // as it is in text; not empty
  int32_t id = 0;
  bool special = true;      // left out by DecodeOptions::skip_special
  bool lstrip = false;      // takes the white space before it along
  bool rstrip = false;      // and that behind it
  bool normalized = false;  // searched for in the second round
  // Only where no word character (UTS 18's \w) is on either side of it.
  bool single_word = false;
};

// A part of a text: one added token, or text between them (id < 0). Never empty.
struct TextPiece {
  std::string_view text;
  int32_t id = -1;
};

class AddedTokenMatcher {
 public:
  AddedTokenMatcher() = default;
  explicit AddedTokenMatcher(const std::vector<AddedToken>& tokens);

  // Cuts `text` (which must outlive the pieces) at the added tokens; with parse_special false,
  // special ones count as ordinary text.
  std::vector<TextPiece> Split(std::string_view text, bool parse_special) const;

 private:
  // A trie over bytes; children of a node form a linked list.
  struct Node {
    uint8_t byte = 0;
    int32_t first_child = -1;
    int32_t next_sibling = -1;
    int32_t token = -1;  // index into tokens_
  };
  struct Trie {
    std::vector<Node> nodes = std::vector<Node>(1);  // the root first
    std::array<bool, 256> starts = {};               // bytes that some token begins with
  };
  struct Match {
    size_t begin;
    size_t end;
    int32_t token;  // < 0: none
  };

  void Insert(int32_t token, Trie* trie);
  Match FindNext(const Trie& trie, std::string_view text, size_t from) const;
  void SplitOnce(const Trie& trie, std::string_view text, bool parse_special,
                 std::vector<TextPiece>* pieces) const;

  std::vector<AddedToken> tokens_;
  Trie first_;
  Trie second_;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_ADDED_TOKENS_H_
