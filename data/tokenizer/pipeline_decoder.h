// SPDX-License-Identifier: Apache-2.0
// The `decoder` of a tokenizer.json: pieces back to text.
//
//   TESSERA_ASSIGN_OR_RETURN(const auto decoder, PipelineDecoder::Parse(root["decoder"]));
//   decoder.Decode({"▁Hello", "▁world"});   // "Hello world" with Metaspace
//
// Types: ByteLevel, WordPiece, Metaspace, BPEDecoder, ByteFallback, Fuse, Strip, Replace, Sequence.
// Another one is refused by name. Bytes that are not UTF-8 are left as they are, where Hugging
// Face's tokenizers put U+FFFD. Immutable; safe from several threads.
#ifndef TESSERA_DATA_TOKENIZER_PIPELINE_DECODER_H_
#define TESSERA_DATA_TOKENIZER_PIPELINE_DECODER_H_

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/tokenizer/json_part.h"

namespace tessera::data {

class PipelineDecoder {
 public:
  // Of null: pieces with blanks between.
  static StatusOr<PipelineDecoder> Parse(const JsonPart& part);

  std::string Decode(std::vector<std::string> pieces) const;

 private:
  using Pieces = std::vector<std::string>;
  using Step = std::function<void(Pieces*)>;
  Status Add(const JsonPart& part);

  std::vector<Step> steps_;
  bool joins_by_blanks_ = false;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_PIPELINE_DECODER_H_
