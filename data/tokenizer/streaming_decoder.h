// SPDX-License-Identifier: Apache-2.0
// Turns ids into text as they come, one at a time, without ever giving half a character.
//
//   StreamingDecoder decoder(tokenizer);
//   for (int32_t id : generated) std::cout << decoder.Push(id) << std::flush;
//   std::cout << decoder.Finish();
//
// What Push and Finish return, joined, is Tokenizer::Decode of the same ids (WordPiece's and
// SentencePiece's set special tokens and punctuation off a little differently). Bytes that cannot
// become UTF-8 any more are passed on as they are (see ReplaceInvalidUtf8 in utf8.h). Held back are
// at most three bytes, and white space where the tokenizer's texts end without any.
#ifndef TESSERA_DATA_TOKENIZER_STREAMING_DECODER_H_
#define TESSERA_DATA_TOKENIZER_STREAMING_DECODER_H_

#include <string>
#include <string_view>
#include <utility>

#include "base/python_text.h"
#include "base/utf8.h"
#include "data/tokenizer/tokenizer.h"

namespace tessera::data {

class StreamingDecoder {
 public:
  // `tokenizer` must outlive the decoder. `follows_text`: the tokens continue a text, whose blanks
  // between words are kept where Decode would drop one in front.
  explicit StreamingDecoder(const Tokenizer& tokenizer, const DecodeOptions& options = {},
                            bool follows_text = false)
      : tokenizer_(tokenizer), options_(options), at_beginning_(!follows_text) {}

  // The text that `id` completes; may be empty.
  std::string Push(int32_t id) {
    if (!options_.skip_special || !tokenizer_.IsSpecial(id)) Add(id);
    return TakeWhole();
  }

  // The same of a special token whose text is wanted even where the others' is skipped.
  std::string PushShown(int32_t id) {
    Add(id);
    return TakeWhole();
  }

  // What is still held back: the beginning of a character that never ended. The decoder is then as
  // new.
  std::string Finish() {
    at_beginning_ = true;
    std::string rest = std::exchange(held_, std::string());
    if (tokenizer_.strips_text()) rest.resize(StripRight(rest).size());
    return rest;
  }

 private:
  std::string TakeWhole() {
    size_t whole = held_.size() - IncompleteUtf8Suffix(held_);
    if (tokenizer_.strips_text()) {
      whole = StripRight(std::string_view(held_).substr(0, whole)).size();
    }
    std::string text = held_.substr(0, whole);
    held_.erase(0, whole);
    return text;
  }

  void Add(int32_t id) {
    std::string_view bytes =
        at_beginning_ ? tokenizer_.FirstTokenBytes(id) : tokenizer_.TokenBytes(id);
    if (at_beginning_ && tokenizer_.strips_text()) bytes = StripLeft(bytes);
    const bool goes_on = tokenizer_.drops_blanks_until_text() || tokenizer_.strips_text();
    at_beginning_ = at_beginning_ && goes_on && bytes.empty();
    held_ += bytes;
  }

  const Tokenizer& tokenizer_;
  DecodeOptions options_;
  std::string held_;
  bool at_beginning_ = true;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_STREAMING_DECODER_H_
