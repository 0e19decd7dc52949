// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/pipeline_splitter.h"

#include <algorithm>
#include <utility>

#include "base/normal_forms.h"
#include "base/python_text.h"
#include "base/unicode_classes.h"
#include "base/utf8.h"
#include "core/regex.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/pipeline_normalizer.h"

namespace tessera::data {
namespace {

struct Range {
  size_t begin;
  size_t end;
  bool match;
};

// What becomes of the delimiters that are found.
enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

StatusOr<Behavior> ParseBehavior(const JsonPart& part, std::string_view fallback) {
  TESSERA_ASSIGN_OR_RETURN(const std::string name, part.Text("behavior", fallback));
  constexpr std::pair<std::string_view, Behavior> kNames[] = {
      {"Removed", Behavior::kRemoved},
      {"Isolated", Behavior::kIsolated},
      {"MergedWithPrevious", Behavior::kMergedWithPrevious},
      {"MergedWithNext", Behavior::kMergedWithNext},
      {"Contiguous", Behavior::kContiguous}};
  for (const auto& [known, behavior] : kNames) {
    if (name == known) return behavior;
  }
  return part["behavior"].Unsupported();
}

// The parts of the text that are cut out of `ranges`, which cover it in order.
std::vector<Range> Arranged(const std::vector<Range>& ranges, Behavior behavior) {
  std::vector<Range> out;
  bool previous_match = false;
  switch (behavior) {
    case Behavior::kRemoved:
      std::copy_if(ranges.begin(), ranges.end(), std::back_inserter(out),
                   [](const Range& r) { return !r.match; });
      break;
    case Behavior::kIsolated:
      return ranges;
    case Behavior::kContiguous:
      for (const Range& range : ranges) {
        if (!out.empty() && out.back().match == range.match) {
          out.back().end = range.end;
        } else {
          out.push_back(range);
        }
      }
      break;
    case Behavior::kMergedWithPrevious:
      for (const Range& range : ranges) {
        if (range.match && !previous_match && !out.empty()) {
          out.back().end = range.end;
        } else {
          out.push_back(range);
        }
        previous_match = range.match;
      }
      break;
    case Behavior::kMergedWithNext:
      for (auto range = ranges.rbegin(); range != ranges.rend(); ++range) {
        if (range->match && !previous_match && !out.empty()) {
          out.back().begin = range->begin;
        } else {
          out.push_back(*range);
        }
        previous_match = range->match;
      }
      std::reverse(out.begin(), out.end());
      break;
  }
  return out;
}

// Each character by itself: those that `is` holds for are delimiters.
template <typename Predicate>
std::vector<Range> CharacterRanges(std::string_view text, Predicate is) {
  std::vector<Range> ranges;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text, i);
    const size_t end = i + static_cast<size_t>(c.length);
    const bool match = is(c.code_point);
    if (!match && !ranges.empty() && !ranges.back().match) {
      ranges.back().end = end;
    } else {
      ranges.push_back({i, end, match});
    }
    i = end;
  }
  return ranges;
}

std::vector<Range> RegexRanges(std::string_view text, const Regex& regex, bool invert) {
  std::vector<Range> ranges;
  size_t done = 0;
  regex.FindAll(text, [&](size_t begin, size_t end) {
    if (begin > done) ranges.push_back({done, begin, invert});
    ranges.push_back({begin, end, !invert});
    done = end;
  });
  if (done < text.size()) ranges.push_back({done, text.size(), invert});
  return ranges;
}

bool IsSpace(char32_t c) { return UnicodeClasses::Get().Of(c) == CharClass::kSpace; }
bool IsNumber(char32_t c) { return UnicodeClasses::Get().Of(c) == CharClass::kNumber; }

// What Rust's regular expressions take for \w, beside letters and marks.
bool IsWordCharacter(char32_t c) {
  if (UnicodeClasses::Get().Of(c) == CharClass::kLetter || IsMark(c)) return true;
  static const Regex* const others = [] {
    auto regex = Regex::Compile(
        "[\\p{Nd}\\p{Nl}\\p{Pc}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}"
        "\\x{1F170}-\\x{1F189}\\x{200C}\\x{200D}]");
    return regex.ok() ? new Regex(*std::move(regex)) : nullptr;
  }();
  bool found = false;
  std::string text;
  AppendUtf8(c, &text);
  if (others != nullptr) others->FindAll(text, [&](size_t, size_t) { found = true; });
  return found;
}

// Runs of word characters, and runs of others that are no white space.
void SplitAtWhitespace(std::string_view text, const std::function<void(size_t, size_t)>& f) {
  enum Kind { kSpace, kWord, kOther };
  size_t begin = 0;
  Kind run = kSpace;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text, i);
    const Kind kind =
        IsSpace(c.code_point) ? kSpace : (IsWordCharacter(c.code_point) ? kWord : kOther);
    if (kind != run) {
      if (run != kSpace) f(begin, i);
      begin = i;
      run = kind;
    }
    i += static_cast<size_t>(c.length);
  }
  if (run != kSpace) f(begin, text.size());
}

}  // namespace

StatusOr<PipelineSplitter> PipelineSplitter::Parse(const JsonPart& part) {
  PipelineSplitter result;
  if (!part.is_null()) TESSERA_RETURN_IF_ERROR(result.Add(part));
  return result;
}

Status PipelineSplitter::AddMetaspace(const JsonPart& part) {
  TESSERA_ASSIGN_OR_RETURN(const std::string replacement, part.Text("replacement", "▁"));
  TESSERA_ASSIGN_OR_RETURN(const bool old_prefix, part.Bool("add_prefix_space", true));
  TESSERA_ASSIGN_OR_RETURN(const std::string scheme,
                           part.Text("prepend_scheme", old_prefix ? "always" : "never"));
  TESSERA_ASSIGN_OR_RETURN(const bool split, part.Bool("split", true));
  if (replacement.empty()) return part["replacement"].Wrong("empty");
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    return part["prepend_scheme"].Unsupported();
  }
  TESSERA_ASSIGN_OR_RETURN(const Regex regex, Regex::Compile(EscapedForRegex(replacement)));
  steps_.push_back({[=](const Word& word, std::vector<Word>* out) {
    std::string text = ReplacedAll(word.text, " ", replacement);
    const bool prepends = scheme == "always" || (scheme == "first" && word.at_begin);
    if (prepends && !text.starts_with(replacement)) text = replacement + text;
    if (!split) {
      out->push_back({std::move(text), word.at_begin});
      return;
    }
    for (const Range& r : Arranged(RegexRanges(text, regex, false), Behavior::kMergedWithNext)) {
      out->push_back({text.substr(r.begin, r.end - r.begin), word.at_begin && r.begin == 0});
    }
  }});
  return OkStatus();
}

Status PipelineSplitter::AddByteLevel(const JsonPart& part) {
  TESSERA_ASSIGN_OR_RETURN(const bool adds_blank, part.Bool("add_prefix_space", true));
  TESSERA_ASSIGN_OR_RETURN(const bool splits, part.Bool("use_regex", true));
  const auto apply = [adds_blank, splits](const Word& word, std::vector<Word>* out) {
    const std::string text =
        adds_blank && !word.text.starts_with(' ') ? " " + word.text : word.text;
    if (!splits) {
      out->push_back({text, word.at_begin});
      return;
    }
    Gpt2Splitter splitter(text);
    std::string_view piece;
    for (bool first = true; splitter.Next(&piece); first = false) {
      out->push_back({std::string(piece), word.at_begin && first});
    }
  };
  steps_.push_back({apply, Kind::kBytes, adds_blank, splits});
  return OkStatus();
}

Status PipelineSplitter::AddSplit(const JsonPart& part) {
  TESSERA_ASSIGN_OR_RETURN(const bool invert, part.Bool("invert", false));
  TESSERA_ASSIGN_OR_RETURN(const Behavior behavior, ParseBehavior(part, ""));
  TESSERA_ASSIGN_OR_RETURN(const Regex regex, ParsePattern(part["pattern"]));
  steps_.push_back({[regex, invert, behavior](const Word& word, std::vector<Word>* out) {
    for (const Range& r : Arranged(RegexRanges(word.text, regex, invert), behavior)) {
      out->push_back({word.text.substr(r.begin, r.end - r.begin), word.at_begin && r.begin == 0});
    }
  }});
  return OkStatus();
}

Status PipelineSplitter::Add(const JsonPart& part) {
  const std::string_view type = part.type();
  const auto by_characters = [this](bool (*is)(char32_t), Behavior behavior) {
    steps_.push_back({[is, behavior](const Word& word, std::vector<Word>* out) {
      for (const Range& r : Arranged(CharacterRanges(word.text, is), behavior)) {
        out->push_back({word.text.substr(r.begin, r.end - r.begin), word.at_begin && r.begin == 0});
      }
    }});
  };
  if (type == "Sequence") {
    const JsonPart all = part["pretokenizers"];
    for (size_t i = 0; i < all.size(); ++i) TESSERA_RETURN_IF_ERROR(Add(all[i]));
  } else if (type == "ByteLevel") {
    return AddByteLevel(part);
  } else if (type == "Metaspace") {
    return AddMetaspace(part);
  } else if (type == "BertPreTokenizer") {
    steps_.push_back({[](const Word& word, std::vector<Word>* out) {
                        BertNormalizer::ForEachWord(word.text, [&](std::string_view part) {
                          const bool first = part.data() == word.text.data();
                          out->push_back({std::string(part), word.at_begin && first});
                        });
                      },
                      Kind::kBert});
  } else if (type == "WhitespaceSplit") {
    by_characters(IsSpace, Behavior::kRemoved);
  } else if (type == "Whitespace") {
    steps_.push_back({[](const Word& word, std::vector<Word>* out) {
      SplitAtWhitespace(word.text, [&](size_t begin, size_t end) {
        out->push_back({word.text.substr(begin, end - begin), word.at_begin && begin == 0});
      });
    }});
  } else if (type == "Split") {
    return AddSplit(part);
  } else if (type == "Digits") {
    TESSERA_ASSIGN_OR_RETURN(const bool individual, part.Bool("individual_digits", false));
    by_characters(IsNumber, individual ? Behavior::kIsolated : Behavior::kContiguous);
  } else if (type == "Punctuation") {
    TESSERA_ASSIGN_OR_RETURN(const Behavior behavior, ParseBehavior(part, "Isolated"));
    by_characters(IsBertPunctuation, behavior);
  } else {
    return part.Unsupported();
  }
  return OkStatus();
}

std::string_view PipelineSplitter::WithBlank(std::string_view text, std::string* storage) const {
  if (!splits_as_gpt2() || !steps_.front().adds_blank || text.starts_with(' ')) return text;
  storage->reserve(text.size() + 1);
  storage->assign(1, ' ').append(text);
  return *storage;
}

std::vector<std::string> PipelineSplitter::Split(std::string_view text, bool at_begin) const {
  std::vector<Word> words = {{std::string(text), at_begin}};
  for (const Step& step : steps_) {
    std::vector<Word> next;
    for (const Word& word : words) {
      if (!word.text.empty()) step.apply(word, &next);
    }
    words = std::move(next);
    if (step.kind != Kind::kBytes || (as_bytes_ && &step == &steps_.back())) continue;
    for (Word& word : words) word.text = PieceOfBytes(word.text);
  }
  std::vector<std::string> out;
  out.reserve(words.size());
  for (Word& word : words) {
    if (!word.text.empty()) out.push_back(std::move(word.text));
  }
  return out;
}

}  // namespace tessera::data
