// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <initializer_list>

#include "absl/strings/ascii.h"
#include "corpus/filters/quality.h"
#include "corpus/io/text_units.h"
#include "data/tokenizer/bert_normalizer.h"

namespace tessera::corpus {
namespace {

bool HasAny(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::ranges::any_of(
      parts, [&](std::string_view part) { return text.find(part) != std::string_view::npos; });
}

// The rule that takes a line out; empty: it stays.
std::string_view LineRule(std::string_view line) {
  const bool ends = line.ends_with('.') || line.ends_with('!') || line.ends_with('?') ||
                    line.ends_with('"') || line.ends_with("\xE2\x80\x9D");
  if (!ends || line.ends_with("...")) return "c4_line_end";
  int64_t words = 0;
  bool inside = false;
  for (const char c : line) {
    const bool blank = std::isspace(static_cast<unsigned char>(c)) != 0;
    words += !blank && !inside;
    inside = !blank;
  }
  if (words < 5) return "c4_line_words";
  const std::string lower = absl::AsciiStrToLower(std::string(line));
  if (HasAny(lower, {"javascript"})) return "c4_line_javascript";
  if (HasAny(lower, {"terms of use", "privacy policy", "cookie policy", "uses cookies",
                     "use of cookies", "use cookies"})) {
    return "c4_line_policy";
  }
  return "";
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
  constexpr int64_t kLeastSentences = 5;
  std::string kept;
  for (const std::string_view unit : UnitsOf(*text, TextUnit::kLine)) {
    const std::string_view line = Bare(unit);
    if (line.empty()) continue;
    const std::string_view rule = LineRule(line);
    if (rule.empty()) {
      if (!kept.empty()) kept += '\n';
      kept += line;
    } else {
      ++(*counts)[Concat("removed: ", rule)];
    }
  }
  *text = std::move(kept);
  const std::string lower = absl::AsciiStrToLower(*text);
  if (HasAny(lower, {"lorem ipsum"})) return {"c4_lorem_ipsum", "1"};
  if (const auto brackets = std::ranges::count(*text, '{'); brackets > 0) {
    return {"c4_curly_bracket", std::to_string(brackets)};
  }
  const int64_t sentences = CountSentences(*text);
  if (sentences < kLeastSentences) return {"c4_sentences", std::to_string(sentences)};
  return {};
}

Verdict BadWords(const TextFacts& facts, const std::set<std::string, std::less<>>& words) {
  for (const TextPiece& word : facts.words) {
    std::string bare = data::LowerCased(word.text);
    const auto is_mark = [](char c) { return std::ispunct(static_cast<unsigned char>(c)) != 0; };
    while (!bare.empty() && is_mark(bare.back())) bare.pop_back();
    while (!bare.empty() && is_mark(bare.front())) bare.erase(0, 1);
    if (words.contains(bare)) return {"bad_words", bare};
  }
  return {};
}

}  // namespace tessera::corpus
