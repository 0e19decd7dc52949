// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/added_tokens.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/unicode_classes.h"
#include "base/utf8.h"
#include "data/tokenizer/split_characters.h"
#include "data/tokenizer/tokenizer.h"

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

bool IsWord(const Utf8Char& c) { return c.valid && SplitCharacters::Get().IsWord(c.code_point); }

// Whether text[begin, end) has no word character right before it or right behind it.
bool IsSingleWord(std::string_view text, size_t begin, size_t end) {
  return (begin == 0 || !IsWord(LastChar(text.substr(0, begin)))) &&
         (end == text.size() || !IsWord(DecodeUtf8(text, end)));
}

}  // namespace

const AddedToken* FindByContent(const std::vector<AddedToken>& tokens, std::string_view content) {
  const auto at = std::find_if(tokens.begin(), tokens.end(),
                               [&](const AddedToken& token) { return token.content == content; });
  return at == tokens.end() ? nullptr : &*at;
}

const AddedToken* FindById(const std::vector<AddedToken>& tokens, int32_t id) {
  const auto at = std::lower_bound(tokens.begin(), tokens.end(), id,
                                   [](const AddedToken& t, int32_t value) { return t.id < value; });
  return at != tokens.end() && at->id == id ? &*at : nullptr;
}

void SortById(std::vector<AddedToken>* tokens) {
  std::stable_sort(tokens->begin(), tokens->end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
}

uint64_t HashTokens(const std::vector<AddedToken>& tokens, uint64_t hash) {
  for (const AddedToken& token : tokens) {
    hash = HashBytes(Concat(token.content, token.id, token.normalized, token.lstrip, token.rstrip,
                            token.single_word ? "word" : ""),
                     hash);
  }
  return hash;
}

AddedTokenMatcher::AddedTokenMatcher(const std::vector<AddedToken>& tokens)
    : tokens_(tokens), first_(MakeRound(false)), second_(MakeRound(true)) {}

AddedTokenMatcher::Round AddedTokenMatcher::MakeRound(bool normalized) const {
  Round round;
  std::vector<ByteTrie::Entry> entries;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& content = tokens_[i].content;
    if (content.empty() || tokens_[i].normalized != normalized) continue;
    round.starts[static_cast<uint8_t>(content[0])] = true;
    entries.emplace_back(content, static_cast<int32_t>(i));
  }
  round.is_empty = entries.empty();
  const bool same = std::all_of(entries.begin(), entries.end(), [&](const auto& entry) {
    return entry.first[0] == entries[0].first[0];
  });
  if (same && !round.is_empty) round.only_start = entries[0].first[0];
  round.trie = ByteTrie(std::move(entries));
  return round;
}

AddedTokenMatcher::Match AddedTokenMatcher::FindNext(const Round& round, std::string_view text,
                                                     size_t from) {
  if (round.is_empty) from = text.size();
  const bool* const starts = round.starts.data();
  const char* const end = text.data() + text.size();
  for (const char* at = text.data() + from; at < end; ++at) {
    if (!starts[static_cast<uint8_t>(*at)]) {  // nearly all of a text
      if (!round.only_start) continue;
      at = static_cast<const char*>(
          std::memchr(at, *round.only_start, static_cast<size_t>(end - at)));
      if (at == nullptr) break;
    }
    const auto begin = static_cast<size_t>(at - text.data());
    int32_t token = -1;
    const size_t length = round.trie.LongestPrefix(text.substr(begin), &token);
    if (length > 0) return {begin, begin + length, token};
  }
  return {text.size(), text.size(), -1};
}

void AddedTokenMatcher::SplitOnce(const Round& round, std::string_view text, bool parse_special,
                                  std::vector<TextPiece>* pieces) const {
  size_t done = 0;
  size_t from = 0;
  // The last white space that was skipped: a token inside of it does not cause a second look.
  size_t skip_from = 0;
  size_t skip_to = 0;
  while (true) {
    const Match match = FindNext(round, text, from);
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
  if (second_.is_empty) return pieces;
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
