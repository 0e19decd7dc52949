// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <initializer_list>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/unicode_classes.h"
#include "base/utf8.h"
#include "corpus/engine/hash.h"
#include "corpus/filters/quality.h"

namespace tessera::corpus {
namespace {

std::string Shown(double value) { return absl::StrFormat("%.4g", value); }

double Ratio(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(std::max<int64_t>(1, whole));
}

int64_t CountOf(std::string_view text, std::string_view part) {
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

bool HasLetter(std::string_view word) {
  const UnicodeClasses& classes = UnicodeClasses::Get();
  for (size_t i = 0; i < word.size();) {
    const auto byte = static_cast<uint8_t>(word[i]);
    if (byte < 0x80) {
      const int lower = byte | 0x20;
      if (lower >= 'a' && lower <= 'z') return true;
      ++i;
      continue;
    }
    const Utf8Char c = DecodeUtf8(word, i);
    if (classes.Of(c.code_point) == CharClass::kLetter) return true;
    i += static_cast<size_t>(c.length);
  }
  return false;
}

bool StartsWithAny(std::string_view text, std::initializer_list<std::string_view> starts) {
  return std::ranges::any_of(starts, [&](std::string_view s) { return text.starts_with(s); });
}

// Hashes that were seen, with a figure each.
class HashTable {
 public:
  explicit HashTable(size_t most) {
    size_t size = 16;
    while (size < 2 * most) size *= 2;
    entries_.resize(size);
  }
  // Its figure, 0 when it is new; 0 is no hash.
  int64_t& operator[](uint64_t hash) {
    hash |= hash == 0;
    for (size_t i = hash & (entries_.size() - 1);; i = (i + 1) & (entries_.size() - 1)) {
      Entry& entry = entries_[i];
      if (entry.hash == hash) return entry.figure;
      if (entry.hash == 0) {
        entry.hash = hash;
        return entry.figure;
      }
    }
  }
  void Clear() { std::fill(entries_.begin(), entries_.end(), Entry()); }

 private:
  struct Entry {
    uint64_t hash = 0;
    int64_t figure = 0;
  };
  std::vector<Entry> entries_;
};

struct Repeated {
  int64_t count = 0;
  int64_t characters = 0;
};

Repeated RepeatedOf(const std::vector<TextPiece>& pieces) {
  Repeated repeated;
  HashTable seen(pieces.size());
  for (const TextPiece& piece : pieces) {
    if (seen[piece.hash]++ == 0) continue;
    ++repeated.count;
    repeated.characters += piece.characters;
  }
  return repeated;
}

// Words in a row.
class Grams {
 public:
  explicit Grams(const std::vector<TextPiece>& words) : words_(words), table_(words.size()) {}

  uint64_t HashAt(size_t i, size_t n) const {
    uint64_t hash = n;
    for (size_t k = i; k < i + n; ++k) hash = Fold(hash ^ words_[k].hash, kHashB);
    return hash;
  }
  int64_t CharactersAt(size_t i, size_t n) const {
    int64_t characters = static_cast<int64_t>(n) - 1;  // the blanks in between
    for (size_t k = i; k < i + n; ++k) characters += words_[k].characters;
    return characters;
  }
  // Characters that the commonest n-gram takes; 0 where none comes twice.
  int64_t OfCommonest(size_t n) {
    table_.Clear();
    int64_t most = 1, characters = 0;
    for (size_t i = 0; i + n <= words_.size(); ++i) {
      const int64_t count = ++table_[HashAt(i, n)];
      if (count <= most) continue;
      most = count;
      characters = count * CharactersAt(i, n);
    }
    return characters;
  }
  // Characters of n-grams that came before, none counted twice.
  int64_t OfRepeated(size_t n) {
    table_.Clear();
    int64_t characters = 0;
    for (size_t i = 0; i + n <= words_.size();) {
      if (table_[HashAt(i, n)]++ == 0) {
        ++i;
      } else {
        characters += CharactersAt(i, n);
        i += n;
      }
    }
    return characters;
  }

 private:
  const std::vector<TextPiece>& words_;
  HashTable table_;
};

}  // namespace

Verdict GopherQuality(const TextFacts& facts) {
  const int64_t words = std::ssize(facts.words);
  if (words < 50 || words > 100000) return {"gopher_words", std::to_string(words)};
  int64_t characters = 0, with_letters = 0;
  std::array<bool, 8> seen = {};
  constexpr std::array<std::string_view, 8> kStopWords = {"the", "be",   "to",   "of",
                                                          "and", "that", "have", "with"};
  for (const TextPiece& word : facts.words) {
    characters += word.characters;
    with_letters += HasLetter(word.text);
    if (word.text.size() > 4) continue;
    const auto* const stop = std::ranges::find(kStopWords, word.text);
    if (stop != kStopWords.end()) seen[static_cast<size_t>(stop - kStopWords.begin())] = true;
  }
  const double length = Ratio(characters, words);
  if (length < 3 || length > 10) return {"gopher_word_length", Shown(length)};
  const double hashes = Ratio(CountOf(facts.text, "#"), words);
  const double ellipses =
      Ratio(CountOf(facts.text, "...") + CountOf(facts.text, "\xE2\x80\xA6"), words);
  if (std::max(hashes, ellipses) > 0.1) {
    return {"gopher_symbols", Shown(std::max(hashes, ellipses))};
  }
  int64_t bullets = 0, ends = 0;
  for (const TextPiece& line : facts.lines) {
    bullets += StartsWithAny(line.text, {"\xE2\x80\xA2", "-", "*", "\xE2\x80\xA3", "\xE2\x97\xA6"});
    ends += line.text.ends_with("...") || line.text.ends_with("\xE2\x80\xA6");
  }
  const int64_t lines = std::ssize(facts.lines);
  if (Ratio(bullets, lines) > 0.9) return {"gopher_bullets", Shown(Ratio(bullets, lines))};
  if (Ratio(ends, lines) > 0.3) return {"gopher_ellipsis", Shown(Ratio(ends, lines))};
  const double letters = Ratio(with_letters, words);
  if (letters < 0.8) return {"gopher_letters", Shown(letters)};
  const int64_t stop_words = std::ranges::count(seen, true);
  if (stop_words < 2) return {"gopher_stop_words", std::to_string(stop_words)};
  return {};
}

Verdict GopherRepetition(const TextFacts& facts) {
  const auto check = [&](const std::vector<TextPiece>& pieces, const char* name) -> Verdict {
    const Repeated repeated = RepeatedOf(pieces);
    if (const double share = Ratio(repeated.count, std::ssize(pieces)); share > 0.3) {
      return {Concat("gopher_duplicate_", name, "s"), Shown(share)};
    }
    if (const double share = Ratio(repeated.characters, facts.characters); share > 0.2) {
      return {Concat("gopher_duplicate_", name, "_characters"), Shown(share)};
    }
    return {};
  };
  for (const auto& [pieces, name] :
       {std::pair{&facts.paragraphs, "paragraph"}, {&facts.lines, "line"}}) {
    if (Verdict verdict = check(*pieces, name); !verdict.filter.empty()) return verdict;
  }
  Grams grams(facts.words);
  constexpr double kTop[] = {0.2, 0.18, 0.16};
  for (size_t n = 2; n <= 4; ++n) {
    const double share = Ratio(grams.OfCommonest(n), facts.characters);
    if (share > kTop[n - 2]) return {Concat("gopher_top_", n, "_gram"), Shown(share)};
  }
  constexpr double kRepeated[] = {0.15, 0.14, 0.13, 0.12, 0.11, 0.10};
  for (size_t n = 5; n <= 10; ++n) {
    const double share = Ratio(grams.OfRepeated(n), facts.characters);
    if (share > kRepeated[n - 5]) return {Concat("gopher_duplicate_", n, "_gram"), Shown(share)};
  }
  return {};
}

}  // namespace tessera::corpus
