// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/known_split.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/python_text.h"
#include "data/tokenizer/class_reader.h"
#include "data/tokenizer/gpt2_split.h"
#include "data/tokenizer/split_characters.h"
#include "data/tokenizer/split_patterns.h"

namespace tessera::data {
namespace {

using Found = std::function<void(size_t, size_t)>;

// A position of a text that a match ends at; kNone: there is no match.
constexpr size_t kNone = std::string_view::npos;

bool IsNewline(char byte) { return byte == '\n' || byte == '\r'; }

bool IsAsciiLetter(char byte) {
  const char lower = static_cast<char>(byte | 0x20);
  return lower >= 'a' && lower <= 'z';
}

bool IsAsciiPunctuation(char byte) {
  return (byte >= '!' && byte <= '/') || (byte >= ':' && byte <= '@') ||
         (byte >= '[' && byte <= '`') || (byte >= '{' && byte <= '~');
}

char32_t CharacterAt(std::string_view text, size_t i) {
  const auto first = static_cast<uint8_t>(text[i]);
  return first < 0x80 ? first : DecodeUtf8(text, i).code_point;
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d) at text[i]: where it ends. Without case, U+017F is an s.
size_t ContractionEnd(std::string_view text, size_t i) {
  const std::string_view rest = text.substr(i);
  if (rest.size() < 2 || rest[0] != '\'') return kNone;
  if (rest.substr(1).starts_with("\u017F")) return i + 3;
  const char second = static_cast<char>(rest[1] | 0x20);
  const char third = rest.size() > 2 ? static_cast<char>(rest[2] | 0x20) : '\0';
  if (!IsAsciiLetter(rest[1])) return kNone;
  if (second == 's' || second == 't' || second == 'm' || second == 'd') return i + 2;
  if ((second == 'r' || second == 'v') && third == 'e' && IsAsciiLetter(rest[2])) return i + 3;
  return second == 'l' && third == 'l' && IsAsciiLetter(rest[2]) ? i + 3 : kNone;
}

// \s*[\r\n]+|\s+(?!\S)|\s+ at white space: up to its last newline, if it has one; else all of it at
// the end of the text, or all but its last character, which belongs to what follows.
size_t SpaceEnd(const ClassReader& reader, size_t i) {
  const std::string_view text = reader.text();
  size_t newline_end = kNone;
  size_t last = i;
  size_t at = i;
  while (at < text.size()) {
    const ClassReader::Step step = reader.At(at);
    if (step.char_class != CharClass::kSpace) break;
    last = at;
    at += static_cast<size_t>(step.length);
    if (IsNewline(text[last])) newline_end = at;
  }
  if (newline_end != kNone) return newline_end;
  return at == text.size() || last == i ? at : last;
}

// [\r\n]*, or [\r\n/]*.
size_t NewlinesEnd(std::string_view text, size_t i, bool slashes) {
  while (i < text.size() && (IsNewline(text[i]) || (slashes && text[i] == '/'))) ++i;
  return i;
}

// Up to `most` numbers.
size_t NumbersEnd(const ClassReader& reader, size_t i, size_t most) {
  for (size_t count = 0; count < most && i < reader.text().size(); ++count) {
    const ClassReader::Step step = reader.At(i);
    if (step.char_class != CharClass::kNumber) break;
    i += static_cast<size_t>(step.length);
  }
  return i;
}

// What patterns that are built like Llama 3's differ in.
struct WordRules {
  size_t most_digits = 3;
  // Words are capitals and then small letters, with marks; else any letters.
  bool cased = false;
  // English contractions: words of their own, or behind a word where these are cased.
  bool contractions = true;
  // Newlines behind signs may be followed by slashes.
  bool slashes = false;
};

// Whether a character may be among the first letters of a cased word, and among the last.
struct CasedLetter {
  bool first;
  bool last;
  size_t end;
};

CasedLetter CasedLetterAt(const ClassReader& reader, size_t i) {
  const ClassReader::Step step = reader.At(i);
  const size_t end = i + static_cast<size_t>(step.length);
  const char32_t c = CharacterAt(reader.text(), i);
  const SplitCharacters& characters = SplitCharacters::Get();
  if (step.char_class == CharClass::kLetter) {
    return {!characters.IsLower(c), !characters.IsUpper(c), end};
  }
  const bool mark = characters.IsMark(c);
  return {mark, mark, end};
}

// With U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and L = [\p{Ll}\p{Lm}\p{Lo}\p{M}], both at text[i]:
// U*L+, and U+L*.
struct CasedWord {
  size_t with_last = kNone;
  size_t with_first = kNone;
};

CasedWord CasedWordAt(const ClassReader& reader, size_t i) {
  const size_t size = reader.text().size();
  CasedWord word;
  size_t at = i;
  while (at < size) {
    const CasedLetter letter = CasedLetterAt(reader, at);
    if (!letter.first) break;
    at = letter.end;
    // Where U* gives characters back, L+ begins with the last that is of both.
    if (letter.last) word.with_last = at;
  }
  const size_t first_end = at;
  while (at < size) {
    const CasedLetter letter = CasedLetterAt(reader, at);
    if (!letter.last) break;
    at = letter.end;
  }
  if (at > first_end) word.with_last = at;
  if (first_end > i) word.with_first = at;
  return word;
}

class WordFinder {
 public:
  WordFinder(std::string_view text, const WordRules& rules)
      : text_(text), reader_(text), rules_(rules) {}

  // Where the match at i ends. There is one everywhere.
  size_t End(size_t i) const {
    if (rules_.contractions && !rules_.cased) {
      const size_t end = ContractionEnd(text_, i);
      if (end != kNone) return end;
    }
    const ClassReader::Step step = reader_.At(i);
    const size_t next = i + static_cast<size_t>(step.length);
    const size_t word =
        rules_.cased ? CasedEnd(i, step.char_class, next) : LettersEnd(i, step.char_class, next);
    if (word != kNone) return word;
    if (step.char_class == CharClass::kNumber) return NumbersEnd(reader_, i, rules_.most_digits);
    const size_t signs = text_[i] == ' ' ? next : i;
    const size_t end = reader_.RunEnd(signs, CharClass::kOther);
    if (end > signs) return NewlinesEnd(text_, end, rules_.slashes);
    return SpaceEnd(reader_, i);
  }

 private:
  // Whether a character may stand in front of a word: [^\r\n\p{L}\p{N}].
  bool MayPrecede(size_t i, CharClass char_class) const {
    return (char_class == CharClass::kOther || char_class == CharClass::kSpace) &&
           !IsNewline(text_[i]);
  }

  // [^\r\n\p{L}\p{N}]?\p{L}+
  size_t LettersEnd(size_t i, CharClass char_class, size_t next) const {
    if (char_class == CharClass::kLetter) return reader_.RunEnd(next, CharClass::kLetter);
    if (!MayPrecede(i, char_class)) return kNone;
    const size_t end = reader_.RunEnd(next, CharClass::kLetter);
    return end > next ? end : kNone;
  }

  // [^\r\n\p{L}\p{N}]?U*L+CONTRACTION?|[^\r\n\p{L}\p{N}]?U+L*CONTRACTION?
  size_t CasedEnd(size_t i, CharClass char_class, size_t next) const {
    CasedWord behind;
    if (MayPrecede(i, char_class)) behind = CasedWordAt(reader_, next);
    size_t end = behind.with_last;
    if (end == kNone) {
      const CasedWord here = CasedWordAt(reader_, i);
      end = here.with_last;
      if (end == kNone) end = behind.with_first;
      if (end == kNone) end = here.with_first;
    }
    if (end == kNone || !rules_.contractions) return end;
    const size_t contraction = ContractionEnd(text_, end);
    return contraction == kNone ? end : contraction;
  }

  std::string_view text_;
  ClassReader reader_;
  const WordRules& rules_;
};

template <WordRules kRules>
void FindWords(std::string_view text, const Found& f) {
  const WordFinder finder(text, kRules);
  for (size_t i = 0; i < text.size();) {
    const size_t end = finder.End(i);
    f(i, end);
    i = end;
  }
}

void FindGpt2Words(std::string_view text, const Found& f) {
  Gpt2Splitter splitter(text);
  size_t begin = 0;
  for (std::string_view word; splitter.Next(&word); begin += word.size()) {
    f(begin, begin + word.size());
  }
}

// Matches of what `end_at` says about a position: the end of the match there, or kNone.
template <typename EndAt>
void FindSome(std::string_view text, const Found& f, EndAt end_at) {
  for (size_t i = 0; i < text.size();) {
    const size_t end = end_at(i);
    if (end == kNone) {
      i += static_cast<size_t>(DecodeUtf8(text, i).length);
    } else {
      f(i, end);
      i = end;
    }
  }
}

void FindThreeNumbers(std::string_view text, const Found& f) {
  const ClassReader reader(text);
  FindSome(text, f, [&](size_t i) {
    const size_t end = NumbersEnd(reader, i, 3);
    return end == i ? kNone : end;
  });
}

void FindChineseAndKana(std::string_view text, const Found& f) {
  FindSome(text, f, [&](size_t i) {
    size_t end = i;
    while (end < text.size()) {
      const char32_t c = CharacterAt(text, end);
      if ((c < 0x4E00 || c > 0x9FA5) && (c < 0x3040 || c > 0x30FF)) break;
      end += 3;  // of U+0800 to U+FFFF
    }
    return end == i ? kNone : end;
  });
}

// DeepSeek-V3's. Numbers are no words: the pattern before it has cut them off.
class DeepSeekFinder {
 public:
  explicit DeepSeekFinder(std::string_view text) : text_(text), reader_(text) {}

  size_t End(size_t i) const {
    if (IsAsciiPunctuation(text_[i])) {
      size_t end = i + 1;
      while (end < text_.size() && IsAsciiLetter(text_[end])) ++end;
      if (end > i + 1) return end;
    }
    const Kind kind = KindAt(i);
    const size_t next = i + AnnouncedUtf8Length(text_, i);
    if (kind == Kind::kLetter) return RunEnd(i, Kind::kLetter);
    if (kind != Kind::kSign && !IsNewline(text_[i])) {
      const size_t end = RunEnd(next, Kind::kLetter);
      if (end > next) return end;
    }
    const size_t signs = text_[i] == ' ' ? next : i;
    const size_t end = RunEnd(signs, Kind::kSign);
    if (end > signs) return NewlinesEnd(text_, end, /*slashes=*/false);
    return kind == Kind::kSpace ? SpaceEnd(reader_, i) : kNone;
  }

 private:
  // Letters and marks are one kind.
  enum class Kind { kLetter, kSign, kSpace, kOther };
  Kind KindAt(size_t i) const {
    const CharClass char_class = reader_.At(i).char_class;
    if (char_class == CharClass::kLetter) return Kind::kLetter;
    if (char_class == CharClass::kSpace) return Kind::kSpace;
    if (char_class == CharClass::kNumber) return Kind::kOther;
    const char32_t c = CharacterAt(text_, i);
    const SplitCharacters& characters = SplitCharacters::Get();
    if (characters.IsSign(c)) return Kind::kSign;
    return characters.IsMark(c) ? Kind::kLetter : Kind::kOther;
  }
  size_t RunEnd(size_t i, Kind kind) const {
    while (i < text_.size() && KindAt(i) == kind) i += AnnouncedUtf8Length(text_, i);
    return i;
  }

  std::string_view text_;
  ClassReader reader_;
};

void FindDeepSeekWords(std::string_view text, const Found& f) {
  const DeepSeekFinder finder(text);
  FindSome(text, f, [&](size_t i) { return finder.End(i); });
}

constexpr std::string_view kPatterns[] = {
    kGpt2Pattern,
    kLlama3Pattern,
    kQwen2Pattern,
    kO200kPattern,
    kTekkenPattern,
    // DeepSeek-V3's three, one after the other.
    kDeepSeekFirst[0],
    kDeepSeekFirst[1],
    kDeepSeekPattern,
};

constexpr KnownSplit kFinders[] = {
    FindGpt2Words,
    FindWords<WordRules{}>,
    FindWords<WordRules{.most_digits = 1}>,
    FindWords<WordRules{.cased = true, .slashes = true}>,
    FindWords<WordRules{.most_digits = 1, .cased = true, .contractions = false, .slashes = true}>,
    FindThreeNumbers,
    FindChineseAndKana,
    FindDeepSeekWords,
};
static_assert(std::size(kPatterns) == std::size(kFinders));

}  // namespace

KnownSplit FindKnownSplit(std::string_view pattern) {
  // Newlines may be written as themselves.
  const std::string written = ReplacedAll(ReplacedAll(pattern, "\n", "\\n"), "\r", "\\r");
  const auto* const at = std::find(std::begin(kPatterns), std::end(kPatterns), written);
  return at == std::end(kPatterns) ? nullptr : kFinders[at - kPatterns];
}

std::span<const std::string_view> KnownSplitPatterns() { return kPatterns; }

}  // namespace tessera::data
