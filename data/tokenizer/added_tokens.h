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
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/byte_trie.h"

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
  // Tokens of one round by their places in tokens_.
  struct Round {
    ByteTrie trie;
    std::array<bool, 256> starts = {};  // bytes that some token begins with
    std::optional<char> only_start;     // where they all begin with one
    bool is_empty = true;
  };
  struct Match {
    size_t begin;
    size_t end;
    int32_t token;  // < 0: none
  };

  Round MakeRound(bool normalized) const;
  static Match FindNext(const Round& round, std::string_view text, size_t from);
  void SplitOnce(const Round& round, std::string_view text, bool parse_special,
                 std::vector<TextPiece>* pieces) const;

  std::vector<AddedToken> tokens_;
  Round first_;
  Round second_;
};

// What tokens are found by: those that a vocabulary adds are a few.
const AddedToken* FindByContent(const std::vector<AddedToken>& tokens, std::string_view content);
// `tokens` are sorted by id. nullptr: none has it.
const AddedToken* FindById(const std::vector<AddedToken>& tokens, int32_t id);
void SortById(std::vector<AddedToken>* tokens);
// Of what they do to texts, mixed into a fingerprint (tokenizer.h).
uint64_t HashTokens(const std::vector<AddedToken>& tokens, uint64_t hash);

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_ADDED_TOKENS_H_
