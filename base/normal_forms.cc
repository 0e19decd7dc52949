// SPDX-License-Identifier: Apache-2.0
#include "base/normal_forms.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <vector>

#include "base/utf8.h"

namespace tessera {
namespace {

#include "base/normal_forms.inc"

// Hangul syllables (the Unicode standard, section 3.12).
constexpr uint32_t kSyllables = 0xAC00;
constexpr uint32_t kSyllableCount = 11172;
constexpr uint32_t kLeads = 0x1100;
constexpr uint32_t kLeadCount = 19;
constexpr uint32_t kVowels = 0x1161;
constexpr uint32_t kVowelCount = 21;
constexpr uint32_t kTails = 0x11A7;  // one before the first
constexpr uint32_t kTailCount = 28;

// A character that is no valid UTF-8, kept apart from code points.
constexpr char32_t kRawByte = 0x80000000u;

using Decomposition = std::span<const char32_t>;

// A number of the tables, which are written small: seven bits a byte, the lowest first.
uint32_t ReadSmall(const uint8_t** at) {
  uint32_t number = 0;
  for (int shift = 0;; shift += 7) {
    const uint8_t byte = *(*at)++;
    number |= uint32_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return number;
  }
}

class Tables {
 public:
  static const Tables& Get() {
    static const auto* const tables = new Tables();
    return *tables;
  }

  // Empty: c stays.
  Decomposition Decompose(char32_t c, bool compatible) const {
    if (compatible) {
      if (const auto at = compatible_.find(c); at != compatible_.end()) return at->second;
    }
    const auto at = canonical_.find(c);
    return at == canonical_.end() ? Decomposition() : at->second;
  }
  // 0: they do not compose.
  char32_t Compose(char32_t first, char32_t second) const {
    const auto at = pairs_.find(uint64_t{first} << 32 | second);
    return at == pairs_.end() ? 0 : at->second;
  }
  uint8_t Class(char32_t c) const {
    const auto at = classes_.find(c);
    return at == classes_.end() ? 0 : at->second;
  }
  bool Mark(char32_t c) const { return c < marks_.size() && marks_[c]; }
  void VisitCanonical(const std::function<void(char32_t)>& visit) const {
    for (const auto& [c, to] : canonical_) visit(c);
  }

 private:
  Tables() : marks_(0x110000, false) {
    // One byte at least is a number, so that what is pointed to stays where it is.
    numbers_.reserve(std::size(kCanonical) + std::size(kCompatible));
    AddDecompositions(std::begin(kCanonical), std::end(kCanonical), &canonical_);
    AddDecompositions(std::begin(kCompatible), std::end(kCompatible), &compatible_);
    for (const uint8_t* at = std::begin(kPairs); at != std::end(kPairs);) {
      const uint64_t first = ReadSmall(&at);
      const uint64_t second = ReadSmall(&at);
      pairs_[first << 32 | second] = ReadSmall(&at);
    }
    for (const uint32_t* at = std::begin(kClasses); at != std::end(kClasses); at += 3) {
      for (uint32_t c = at[0]; c <= at[1]; ++c) classes_[c] = static_cast<uint8_t>(at[2]);
    }
    for (const uint32_t* at = std::begin(kMarks); at != std::end(kMarks); at += 2) {
      for (uint32_t c = at[0]; c <= at[1]; ++c) marks_[c] = true;
    }
  }
  void AddDecompositions(const uint8_t* at, const uint8_t* end,
                         std::unordered_map<uint32_t, Decomposition>* map) {
    for (uint32_t from = 0; at != end;) {
      from += ReadSmall(&at);
      const size_t begin = numbers_.size();
      const uint32_t count = ReadSmall(&at);
      for (uint32_t i = 0; i < count; ++i) numbers_.push_back(ReadSmall(&at));
      (*map)[from] = {numbers_.data() + begin, count};
    }
  }

  std::vector<char32_t> numbers_;  // of the decompositions
  std::unordered_map<uint32_t, Decomposition> canonical_;
  std::unordered_map<uint32_t, Decomposition> compatible_;
  std::unordered_map<uint64_t, uint32_t> pairs_;
  std::unordered_map<uint32_t, uint8_t> classes_;
  std::vector<bool> marks_;
};

void AppendDecomposed(char32_t c, bool compatible, std::vector<char32_t>* out) {
  if (c >= kSyllables && c < kSyllables + kSyllableCount) {
    const uint32_t s = c - kSyllables;
    out->push_back(kLeads + s / (kVowelCount * kTailCount));
    out->push_back(kVowels + s / kTailCount % kVowelCount);
    if (s % kTailCount != 0) out->push_back(kTails + s % kTailCount);
    return;
  }
  const Decomposition d = Tables::Get().Decompose(c, compatible);
  if (d.empty()) {
    out->push_back(c);
  } else {
    out->insert(out->end(), d.begin(), d.end());
  }
}

// Puts runs of combining characters into canonical order.
void Reorder(std::vector<char32_t>* text) {
  const Tables& tables = Tables::Get();
  for (size_t i = 0; i < text->size(); ++i) {
    if (tables.Class((*text)[i]) == 0) continue;
    size_t end = i;
    while (end < text->size() && tables.Class((*text)[end]) != 0) ++end;
    std::stable_sort(text->begin() + static_cast<ptrdiff_t>(i),
                     text->begin() + static_cast<ptrdiff_t>(end),
                     [&](char32_t a, char32_t b) { return tables.Class(a) < tables.Class(b); });
    i = end - 1;
  }
}

char32_t ComposePair(char32_t first, char32_t second) {
  if (first >= kLeads && first < kLeads + kLeadCount && second >= kVowels &&
      second < kVowels + kVowelCount) {
    return kSyllables + ((first - kLeads) * kVowelCount + (second - kVowels)) * kTailCount;
  }
  if (first >= kSyllables && first < kSyllables + kSyllableCount &&
      (first - kSyllables) % kTailCount == 0 && second > kTails && second < kTails + kTailCount) {
    return first + (second - kTails);
  }
  return Tables::Get().Compose(first, second);
}

void Compose(std::vector<char32_t>* text) {
  const Tables& tables = Tables::Get();
  std::vector<char32_t>& t = *text;
  size_t out = 0;
  size_t starter = 0;
  bool has_starter = false;
  uint8_t last_class = 0;  // of the character before, where it is not the starter itself
  for (const char32_t c : t) {
    const uint8_t own = tables.Class(c);
    const bool adjacent = has_starter && out == starter + 1;
    const bool blocked = !has_starter || (!adjacent && (last_class == 0 || last_class >= own));
    if (!blocked) {
      if (const char32_t composed = ComposePair(t[starter], c); composed != 0) {
        t[starter] = composed;
        continue;
      }
    }
    if (own == 0) {
      starter = out;
      has_starter = true;
    }
    last_class = own;
    t[out++] = c;
  }
  t.resize(out);
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

}  // namespace

std::string Normalize(std::string_view text, NormalForm form) {
  if (IsAscii(text)) return std::string(text);
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  std::vector<char32_t> characters;
  characters.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text, i);
    i += static_cast<size_t>(c.length);
    if (c.valid) {
      AppendDecomposed(c.code_point, compatible, &characters);
    } else {
      characters.push_back(kRawByte | c.code_point);
    }
  }
  Reorder(&characters);
  if (form == NormalForm::kNfc || form == NormalForm::kNfkc) Compose(&characters);
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : characters) {
    if ((c & kRawByte) != 0) {
      out.push_back(static_cast<char>(c & 0xFF));
    } else {
      AppendUtf8(c, &out);
    }
  }
  return out;
}

std::span<const char32_t> CanonicalDecomposition(char32_t c) {
  return Tables::Get().Decompose(c, /*compatible=*/false);
}

void VisitDecomposing(const std::function<void(char32_t c)>& visit) {
  Tables::Get().VisitCanonical(visit);
}

uint8_t CombiningClass(char32_t c) { return Tables::Get().Class(c); }

bool IsMark(char32_t c) { return Tables::Get().Mark(c); }

}  // namespace tessera
