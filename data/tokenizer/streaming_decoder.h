// Turns ids into text as they come, one at a time, without ever giving half a character.
//
//   StreamingDecoder decoder(tokenizer);
//   for (int32_t id : generated) std::cout << decoder.Push(id) << std::flush;
//   std::cout << decoder.Finish();
//
// What Push and Finish return, joined, is Tokenizer::Decode of the same ids. Bytes that cannot
// become UTF-8 any more are passed on as they are (see ReplaceInvalidUtf8 in utf8.h); at most three
// bytes are held back.
#ifndef TESSERA_DATA_TOKENIZER_STREAMING_DECODER_H_
#define TESSERA_DATA_TOKENIZER_STREAMING_DECODER_H_

#include <string>
#include <utility>

#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/utf8.h"

namespace tessera::data {

class StreamingDecoder {
 public:
  // `tokenizer` must outlive the decoder.
  explicit StreamingDecoder(const Tokenizer& tokenizer, const DecodeOptions& options = {})
      : tokenizer_(tokenizer), options_(options) {}

  // The text that `id` completes; may be empty.
  std::string Push(int32_t id) {
    if (!options_.skip_special || !tokenizer_.IsSpecial(id)) held_ += tokenizer_.TokenBytes(id);
    const size_t whole = held_.size() - IncompleteUtf8Suffix(held_);
    std::string text = held_.substr(0, whole);
    held_.erase(0, whole);
    return text;
  }

  // What is still held back: the beginning of a character that never ended. The decoder is then as
  // new.
  std::string Finish() { return std::exchange(held_, std::string()); }

 private:
  const Tokenizer& tokenizer_;
  DecodeOptions options_;
  std::string held_;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_STREAMING_DECODER_H_
