// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <vector>

#include "absl/strings/ascii.h"
#include "base/unicode_classes.h"
#include "base/utf8.h"
#include "corpus/filters/quality.h"
#include "corpus/io/text_units.h"
#include "data/tokenizer/bert_normalizer.h"

namespace tessera::corpus {
namespace {

bool HasAny(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::ranges::any_of(
      parts, [&](std::string_view part) { return text.find(part) != std::string_view::npos; });
}

constexpr int64_t kLongestWord = 1000;
constexpr size_t kLeastWords = 5;
constexpr int64_t kLeastSentences = 3;

// A line without the marks of references that Wikipedia has: "[12]", "[edit]", "[citation needed]".
std::string WithoutCitations(std::string_view line) {
  std::string text;
  while (!line.empty()) {
    size_t size = 0;
    for (const std::string_view mark : {"[edit]", "[citation needed]"}) {
      if (line.starts_with(mark)) size = mark.size();
    }
    if (line[0] == '[') {
      const size_t close = line.find_first_not_of("0123456789", 1);
      if (close != std::string_view::npos && line[close] == ']') size = close + 1;
    }
    if (size == 0) text += line[0];
    line.remove_prefix(std::max<size_t>(size, 1));
  }
  return text;
}

// What becomes of a line: a rule that takes it out, or one that drops the page.
struct LineVerdict {
  std::string_view removed = {};
  Verdict page = {};
};

LineVerdict Judge(std::string_view line) {
  const bool ends = line.ends_with('.') || line.ends_with('!') || line.ends_with('?') ||
                    line.ends_with('"') || line.ends_with("\xE2\x80\x9D");
  if (!ends || line.ends_with("...")) return {.removed = "c4_line_end"};
  if (WordsOf(line).size() < kLeastWords) return {.removed = "c4_line_words"};
  const std::string lower = absl::AsciiStrToLower(std::string(line));
  if (HasAny(lower, {"lorem ipsum"})) return {.page = {"c4_lorem_ipsum", "1"}};
  if (HasAny(lower, {"javascript"})) return {.removed = "c4_line_javascript"};
  if (const auto brackets = std::ranges::count(line, '{'); brackets > 0) {
    return {.page = {"c4_curly_bracket", std::to_string(brackets)}};
  }
  if (HasAny(lower, {"terms of use", "privacy policy", "cookie policy", "uses cookies",
                     "use of cookies", "use cookies"})) {
    return {.removed = "c4_line_policy"};
  }
  return {};
}

// Ends of sentences that blanks or the text's end follow.
int64_t CountSentences(std::string_view text) {
  int64_t count = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '.' && text[i] != '!' && text[i] != '?') continue;
    size_t next = i + 1;
    while (next < text.size() && (text[next] == '"' || text[next] == '\'' || text[next] == ')')) {
      ++next;
    }
    if (text.substr(next).starts_with("\xE2\x80\x9D")) next += 3;
    count += next >= text.size() || std::isspace(static_cast<unsigned char>(text[next])) != 0;
  }
  return count;
}

}  // namespace

Verdict C4(std::string* text, Counts* counts) {
  std::string kept;
  for (const std::string_view unit : UnitsOf(*text, TextUnit::kLine)) {
    const std::vector<TextPiece> words = WordsOf(unit);
    if (words.empty()) continue;
    const char* const end = words.back().text.data() + words.back().text.size();
    const std::string_view bare(words[0].text.data(),
                                static_cast<size_t>(end - words[0].text.data()));
    const bool too_long = std::ranges::any_of(
        words, [](const TextPiece& word) { return word.characters > kLongestWord; });
    const std::string line = WithoutCitations(bare);
    LineVerdict verdict = too_long ? LineVerdict{.removed = "c4_line_long_word"} : Judge(line);
    if (!verdict.page.filter.empty()) return verdict.page;
    if (verdict.removed.empty()) {
      if (!kept.empty()) kept += '\n';
      // A mark may have stood before the first line, whose blanks no text begins with.
      const size_t blanks = static_cast<size_t>(WordsOf(line)[0].text.data() - line.data());
      kept.append(line, kept.empty() ? blanks : 0);
    } else {
      ++(*counts)[Concat("removed: ", verdict.removed)];
    }
  }
  *text = std::move(kept);
  const int64_t sentences = CountSentences(*text);
  if (sentences < kLeastSentences) return {"c4_sentences", std::to_string(sentences)};
  return {};
}

Verdict BadWords(const TextFacts& facts, const std::set<std::string, std::less<>>& words) {
  size_t longest = 0;
  for (const std::string& word : words) longest = std::max(longest, word.size());
  const UnicodeClasses& classes = UnicodeClasses::Get();
  const std::string text = data::LowerCased(facts.text);
  // Where an entry may begin and end: beside what is no part of a word, or at the text's ends.
  std::vector<size_t> begins, ends;
  bool after_word = false;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text, i);
    const CharClass of = classes.Of(c.code_point);
    const bool in_word = of == CharClass::kLetter || of == CharClass::kNumber || text[i] == '_';
    if (!after_word && of != CharClass::kSpace) begins.push_back(i);
    if (!in_word && i > 0) ends.push_back(i);
    after_word = in_word;
    i += static_cast<size_t>(c.length);
  }
  ends.push_back(text.size());
  size_t first = 0;
  for (const size_t begin : begins) {
    while (ends[first] <= begin) ++first;
    for (size_t e = first; e < ends.size() && ends[e] - begin <= longest; ++e) {
      const auto found = words.find(std::string_view(text).substr(begin, ends[e] - begin));
      if (found != words.end()) return {"bad_words", *found};
    }
  }
  return {};
}

}  // namespace tessera::corpus
