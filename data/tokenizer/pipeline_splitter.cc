// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/pipeline_splitter.h"

#include <algorithm>
#include <utility>

#include "base/python_text.h"
#include "base/unicode_classes.h"
#include "base/utf8.h"
#include "data/tokenizer/bert_normalizer.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/split_characters.h"
#include "data/tokenizer/text_pattern.h"

namespace tessera::data {
namespace {

using Range = SplitRange;

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

std::vector<Range> PatternRanges(std::string_view text, const TextPattern& pattern, bool invert) {
  std::vector<Range> ranges;
  size_t done = 0;
  pattern.FindAll(text, [&](size_t begin, size_t end) {
    if (begin > done) ranges.push_back({done, begin, invert});
    ranges.push_back({begin, end, !invert});
    done = end;
  });
  if (done < text.size()) ranges.push_back({done, text.size(), invert});
  return ranges;
}

bool IsNumber(char32_t c) { return UnicodeClasses::Get().Of(c) == CharClass::kNumber; }

// Runs of word characters, and runs of others that are no white space.
std::vector<Range> WhitespaceRanges(std::string_view text) {
  enum Kind { kSpace, kWord, kOther };
  const SplitCharacters& characters = SplitCharacters::Get();
  std::vector<Range> ranges;
  Kind run = kSpace;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text, i);
    const Kind kind =
        IsUnicodeSpace(c.code_point) ? kSpace : (characters.IsWord(c.code_point) ? kWord : kOther);
    const size_t end = i + static_cast<size_t>(c.length);
    if (kind != kSpace && kind == run) {
      ranges.back().end = end;
    } else if (kind != kSpace) {
      ranges.push_back({i, end, false});
    }
    run = kind;
    i = end;
  }
  return ranges;
}

// Those of words that are views of the text, as `for_each` gives them.
template <typename ForEach>
std::vector<Range> WordRanges(std::string_view text, ForEach for_each) {
  std::vector<Range> ranges;
  for_each([&](std::string_view word) {
    const auto begin = static_cast<size_t>(word.data() - text.data());
    ranges.push_back({begin, begin + word.size(), false});
  });
  return ranges;
}

std::vector<Range> Whole(std::string_view text) { return {{0, text.size(), false}}; }

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
  Step step;
  step.prepare = [=](std::string_view word, bool at_begin) {
    std::string text = ReplacedAll(word, " ", replacement);
    const bool prepends = scheme == "always" || (scheme == "first" && at_begin);
    return prepends && !text.starts_with(replacement) ? replacement + text : text;
  };
  step.cut = Whole;
  if (split) {
    step.cut = [pattern = TextPattern::Literal(replacement)](std::string_view text) {
      return Arranged(PatternRanges(text, pattern, false), Behavior::kMergedWithNext);
    };
  }
  steps_.push_back(std::move(step));
  return OkStatus();
}

Status PipelineSplitter::AddByteLevel(const JsonPart& part) {
  TESSERA_ASSIGN_OR_RETURN(const bool adds_blank, part.Bool("add_prefix_space", true));
  TESSERA_ASSIGN_OR_RETURN(const bool splits, part.Bool("use_regex", true));
  Step step = {.cut = Whole, .kind = Kind::kBytes, .adds_blank = adds_blank, .splits = splits};
  step.prepare = [adds_blank](std::string_view word, bool) {
    return Concat(adds_blank && !word.starts_with(' ') ? " " : "", word);
  };
  if (splits) {
    step.cut = [](std::string_view text) {
      return WordRanges(text, [text](const auto& f) {
        Gpt2Splitter splitter(text);
        for (std::string_view word; splitter.Next(&word);) f(word);
      });
    };
  }
  steps_.push_back(std::move(step));
  return OkStatus();
}

Status PipelineSplitter::AddSplit(const JsonPart& part) {
  TESSERA_ASSIGN_OR_RETURN(const bool invert, part.Bool("invert", false));
  TESSERA_ASSIGN_OR_RETURN(const Behavior behavior, ParseBehavior(part, ""));
  TESSERA_ASSIGN_OR_RETURN(const TextPattern pattern, TextPattern::Parse(part["pattern"]));
  AddCut([pattern, invert, behavior](std::string_view text) {
    return Arranged(PatternRanges(text, pattern, invert), behavior);
  });
  return OkStatus();
}

void PipelineSplitter::AddCut(Cut cut, Kind kind) {
  steps_.push_back({.cut = std::move(cut), .kind = kind});
}

Status PipelineSplitter::Add(const JsonPart& part) {
  const std::string_view type = part.type();
  const auto by_characters = [this](bool (*is)(char32_t), Behavior behavior) {
    AddCut([is, behavior](std::string_view text) {
      return Arranged(CharacterRanges(text, is), behavior);
    });
  };
  if (type == "Sequence") {
    const JsonPart all = part["pretokenizers"];
    for (size_t i = 0; i < all.size(); ++i) TESSERA_RETURN_IF_ERROR(Add(all[i]));
  } else if (type == "ByteLevel") {
    return AddByteLevel(part);
  } else if (type == "Metaspace") {
    return AddMetaspace(part);
  } else if (type == "BertPreTokenizer") {
    AddCut(
        [](std::string_view text) {
          return WordRanges(text, [text](const auto& f) { BertNormalizer::ForEachWord(text, f); });
        },
        Kind::kBert);
  } else if (type == "WhitespaceSplit") {
    by_characters(IsUnicodeSpace, Behavior::kRemoved);
  } else if (type == "Whitespace") {
    AddCut(WhitespaceRanges);
  } else if (type == "Split") {
    return AddSplit(part);
  } else if (type == "CharDelimiterSplit") {
    TESSERA_ASSIGN_OR_RETURN(const std::string delimiter, part.Text("delimiter", ""));
    const bool one = !delimiter.empty() &&
                     static_cast<size_t>(DecodeUtf8(delimiter, 0).length) == delimiter.size();
    if (!one) return part["delimiter"].Wrong("not one character");
    AddCut([pattern = TextPattern::Literal(delimiter)](std::string_view text) {
      return Arranged(PatternRanges(text, pattern, false), Behavior::kRemoved);
    });
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

void PipelineSplitter::ForEachOtherWord(std::string_view text, bool at_begin,
                                        const std::function<void(std::string_view)>& f) const {
  if (steps_.size() == 1 && steps_.front().kind == Kind::kBert) {
    BertNormalizer::ForEachWord(text, f);
  } else {
    for (const std::string& word : Split(text, at_begin)) f(word);
  }
}

std::vector<std::string> PipelineSplitter::Split(std::string_view text, bool at_begin) const {
  std::vector<std::string> words = {std::string(text)};
  // Only the first word can begin the text.
  for (const Step& step : steps_) {
    const bool as_characters = step.kind == Kind::kBytes && !(as_bytes_ && &step == &steps_.back());
    std::vector<std::string> next;
    bool next_at_begin = false;
    for (size_t i = 0; i < words.size(); ++i) {
      const bool first = at_begin && i == 0;
      const std::string word = step.prepare ? step.prepare(words[i], first) : std::move(words[i]);
      for (const Range& range : step.cut(word)) {
        if (range.begin == range.end) continue;
        next_at_begin |= next.empty() && first && range.begin == 0;
        const std::string part = word.substr(range.begin, range.end - range.begin);
        next.push_back(as_characters ? PieceOfBytes(part) : part);
      }
    }
    words = std::move(next);
    at_begin = next_at_begin;
  }
  return words;
}

}  // namespace tessera::data
