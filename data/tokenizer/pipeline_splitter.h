// SPDX-License-Identifier: Apache-2.0
// The `pre_tokenizer` of a tokenizer: cuts normalised text into the words that the model sees.
//
//   TESSERA_ASSIGN_OR_RETURN(const auto splitter, PipelineSplitter::Parse(root["pre_tokenizer"]));
//   splitter.ForEachWord("Hello world", /*at_begin=*/true, [](std::string_view word) { ... });
//
// Types: ByteLevel, Metaspace, BertPreTokenizer, Whitespace, WhitespaceSplit, CharDelimiterSplit,
// Split, Digits, Punctuation, Sequence. Another one is refused by name. The results are those of
// Hugging Face's tokenizers. ByteLevel and BertPreTokenizer alone are fast: their words are parts
// of the text. Immutable once a tokenizer is made; safe from several threads.
#ifndef TESSERA_DATA_TOKENIZER_PIPELINE_SPLITTER_H_
#define TESSERA_DATA_TOKENIZER_PIPELINE_SPLITTER_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/tokenizer/gpt2_split.h"
#include "data/tokenizer/json_part.h"

namespace tessera::data {

// A part of a text, and whether a splitter has found it as what stands between words.
struct SplitRange {
  size_t begin;
  size_t end;
  bool match;
};

class PipelineSplitter {
 public:
  // Of null: the text is one word.
  static StatusOr<PipelineSplitter> Parse(const JsonPart& part);

  // Whether a ByteLevel comes last. Its words are then to be bytes (`as_bytes`), or characters of
  // the byte alphabet, as they are if this is never called.
  bool ends_in_bytes() const { return !steps_.empty() && steps_.back().kind == Kind::kBytes; }
  void set_as_bytes(bool as_bytes) { as_bytes_ = as_bytes; }

  // `text` with the blank in front that GPT-2's splitter asks for; *storage holds it if there is a
  // need. ForEachWord expects such a text where splits_as_gpt2.
  std::string_view WithBlank(std::string_view text, std::string* storage) const;
  // Whether text may be cut in two as Gpt2MayCutAt says.
  bool splits_as_gpt2() const {
    return as_bytes_ && steps_.size() == 1 && ends_in_bytes() && steps_.front().splits;
  }

  // Calls f with every word of `text`, valid UTF-8; `at_begin`: it begins the whole text that is
  // encoded. Words end with the call.
  template <typename F>
  void ForEachWord(std::string_view text, bool at_begin, F f) const {
    if (splits_as_gpt2()) {
      Gpt2Splitter splitter(text);
      std::string_view word;
      while (splitter.Next(&word)) f(word);
    } else {
      ForEachOtherWord(text, at_begin, f);
    }
  }

 private:
  enum class Kind { kOther, kBytes, kBert };
  using Cut = std::function<std::vector<SplitRange>(std::string_view)>;
  struct Step {
    // Changes the text of a word before it is cut; empty: it stays.
    std::function<std::string(std::string_view word, bool at_begin)> prepare = {};
    Cut cut;
    Kind kind = Kind::kOther;
    // Of ByteLevel.
    bool adds_blank = false;
    bool splits = false;
  };
  void ForEachOtherWord(std::string_view text, bool at_begin,
                        const std::function<void(std::string_view)>& f) const;
  std::vector<std::string> Split(std::string_view text, bool at_begin) const;
  Status Add(const JsonPart& part);
  void AddCut(Cut cut, Kind kind = Kind::kOther);
  Status AddByteLevel(const JsonPart& part);
  Status AddMetaspace(const JsonPart& part);
  Status AddSplit(const JsonPart& part);

  std::vector<Step> steps_;
  bool as_bytes_ = false;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_PIPELINE_SPLITTER_H_
