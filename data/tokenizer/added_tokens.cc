// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/added_tokens.h"

#include <algorithm>

#include "base/unicode_classes.h"
#include "base/utf8.h"
#include "core/regex.h"

namespace tessera::data {
namespace {

bool IsSpace(const Utf8Char& c) {
  return c.valid && UnicodeClasses::Get().Of(c.code_point) == CharClass::kSpace;
}

// The first offset >= `from` that holds no white space.
size_t SkipSpaces(std::string_view text, size_t from) {
  while (from < text.size()) {
    const Utf8Char c = DecodeUtf8(text, from);
    if (!IsSpace(c)) break;
    from += c.length;
  }
  return from;
}

// The character that ends a text, which is not empty.
Utf8Char LastChar(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && text.size() - begin < 4 &&
         (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) {
    --begin;
  }
  const Utf8Char c = DecodeUtf8(text, begin);
  return begin + c.length == text.size() ? c : DecodeUtf8(text, text.size() - 1);
}

// The least offset >= `floor` from which on text[.., end) is white space.
size_t SpacesBegin(std::string_view text, size_t floor, size_t end) {
  while (end > floor) {
    const Utf8Char c = LastChar(text.substr(0, end));
    if (!IsSpace(c)) break;
    end -= c.length;
  }
  return end;
}

// The tables of classes have letters of a later version of Unicode than PCRE2 may have.
bool IsWord(const Utf8Char& c) {
  static const auto* const others =
      new Regex(*Regex::Compile(R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}])"));
  if (!c.valid) return false;
  if (UnicodeClasses::Get().Of(c.code_point) == CharClass::kLetter) return true;
  std::string text;
  AppendUtf8(c.code_point, &text);
  bool found = false;
  others->FindAll(text, [&](size_t, size_t) { found = true; });
  return found;
}

// Whether text[begin, end) has no word character right before it or right behind it.
bool IsSingleWord(std::string_view text, size_t begin, size_t end) {
  return (begin == 0 || !IsWord(LastChar(text.substr(0, begin)))) &&
         (end == text.size() || !IsWord(DecodeUtf8(text, end)));
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(const std::vector<AddedToken>& tokens) : tokens_(tokens) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i].content.empty()) continue;
    Insert(static_cast<int32_t>(i), tokens_[i].normalized ? &second_ : &first_);
  }
}

void AddedTokenMatcher::Insert(int32_t token, Trie* trie) {
  const std::string& content = tokens_[token].content;
  trie->starts[static_cast<uint8_t>(content[0])] = true;
  int32_t at = 0;
  for (const char c : content) {
    const auto byte = static_cast<uint8_t>(c);
    int32_t child = trie->nodes[at].first_child;
    while (child >= 0 && trie->nodes[child].byte != byte) child = trie->nodes[child].next_sibling;
    if (child < 0) {
      child = static_cast<int32_t>(trie->nodes.size());
      trie->nodes.push_back(Node{byte, -1, trie->nodes[at].first_child, -1});
      trie->nodes[at].first_child = child;
    }
    at = child;
  }
  trie->nodes[at].token = token;
}

AddedTokenMatcher::Match AddedTokenMatcher::FindNext(const Trie& trie, std::string_view text,
                                                     size_t from) const {
  if (trie.nodes.size() == 1) from = text.size();  // it has no tokens
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!trie.starts[static_cast<uint8_t>(text[begin])]) continue;
    Match match = {begin, begin, -1};
    int32_t at = 0;
    for (size_t i = begin; i < text.size(); ++i) {
      int32_t child = trie.nodes[at].first_child;
      while (child >= 0 && trie.nodes[child].byte != static_cast<uint8_t>(text[i])) {
        child = trie.nodes[child].next_sibling;
      }
      if (child < 0) break;
      at = child;
      if (trie.nodes[at].token >= 0) match = {begin, i + 1, trie.nodes[at].token};
    }
    if (match.token >= 0) return match;
  }
  return {text.size(), text.size(), -1};
}

void AddedTokenMatcher::SplitOnce(const Trie& trie, std::string_view text, bool parse_special,
                                  std::vector<TextPiece>* pieces) const {
  size_t done = 0;
  size_t from = 0;
  // The last white space that was skipped: a token inside of it does not cause a second look.
  size_t skip_from = 0;
  size_t skip_to = 0;
  while (true) {
    const Match match = FindNext(trie, text, from);
    if (match.token < 0) break;
    from = match.end;
    const AddedToken& token = tokens_[match.token];
    if (token.special && !parse_special) continue;
    if (token.single_word && !IsSingleWord(text, match.begin, match.end)) continue;
    // White space that the token before has taken is not taken again; but a token that consists of
    // it is found.
    const size_t floor = std::min(done, match.begin);
    const size_t begin = token.lstrip ? SpacesBegin(text, floor, match.begin) : match.begin;
    if (token.rstrip && !(skip_from <= match.end && match.end <= skip_to)) {
      skip_from = match.end;
      skip_to = SkipSpaces(text, match.end);
    }
    const size_t end = token.rstrip ? skip_to : match.end;
    if (begin > done) pieces->push_back({text.substr(done, begin - done), -1});
    pieces->push_back({text.substr(begin, end - begin), token.id});
    done = end;
  }
  if (done < text.size()) pieces->push_back({text.substr(done), -1});
}

std::vector<TextPiece> AddedTokenMatcher::Split(std::string_view text, bool parse_special) const {
  std::vector<TextPiece> pieces;
  SplitOnce(first_, text, parse_special, &pieces);
  if (second_.nodes.size() == 1) return pieces;
  std::vector<TextPiece> all;
  for (const TextPiece& piece : pieces) {
    if (piece.id >= 0) {
      all.push_back(piece);
    } else {
      SplitOnce(second_, piece.text, parse_special, &all);
    }
  }
  return all;
}

}  // namespace tessera::data
