// SPDX-License-Identifier: Apache-2.0
// A tokenizer as its tokenizer.json describes it: normalizer, pre-tokenizer, model, post-processor
// and decoder, each of the types that GPT, T5, BERT, GLM and LLaMA families use.
//
//   TESSERA_ASSIGN_OR_RETURN(auto tokenizer, PipelineTokenizer::Load("folder"));
//   tokenizer->Encode("Hello world");
//
// Ids, and the special tokens that sequence_pair.h puts around them, are those of Hugging Face's
// tokenizers; a part that is not supported is refused with its place in the file (pipeline_*.h list
// what is). Text that is not UTF-8 is encoded with U+FFFD for what is wrong. Byte-level BPE as
// GPT-2's has a faster class of its own (byte_level_bpe.h).
#ifndef TESSERA_DATA_TOKENIZER_PIPELINE_TOKENIZER_H_
#define TESSERA_DATA_TOKENIZER_PIPELINE_TOKENIZER_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/pipeline_decoder.h"
#include "data/tokenizer/pipeline_model.h"
#include "data/tokenizer/pipeline_normalizer.h"
#include "data/tokenizer/pipeline_splitter.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/word_cache.h"

namespace tessera::data {

class PipelineTokenizer : public Tokenizer {
 public:
  // Reads tokenizer.json and, for tokens that it lacks and for the names of the special ones, the
  // files of declared_tokens.h.
  static StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& folder);

  void EncodeTo(std::string_view text, const EncodeOptions& options,
                std::vector<int32_t>* ids) const override;
  std::string Decode(std::span<const int32_t> ids,
                     const DecodeOptions& options = {}) const override;
  // What the decoder makes of the token behind others. Words that are told apart by a suffix
  // (BPEDecoder) lack their blanks here, and so in what StreamingDecoder gives.
  std::string_view TokenBytes(int32_t id) const override;
  std::string_view FirstTokenBytes(int32_t id) const override;
  int64_t vocab_size() const override { return std::ssize(token_bytes_); }
  uint64_t Fingerprint() const override;

 private:
  PipelineTokenizer() = default;
  std::vector<TokenizerFile> Files() const override { return {{"tokenizer.json", json_}}; }
  Status ReadTokenizer(const JsonPart& root);
  // The tokens that the files beside it declare, and those that have a role.
  Status TakeDeclared(const std::string& folder);
  void SetMatchers();
  void EncodeWord(std::string_view word, WordCache* cache, std::vector<int32_t>* ids) const;
  void FillTokenBytes();
  std::string TokenString(int32_t id) const;

  PipelineNormalizer normalizer_;
  PipelineSplitter splitter_;
  std::unique_ptr<PipelineModel> model_;
  PipelineDecoder decoder_;
  std::vector<AddedToken> added_;         // by id
  AddedTokenMatcher matcher_;             // in the text as it is
  AddedTokenMatcher normalized_matcher_;  // in normalised text
  bool clean_up_spaces_ = false;
  std::vector<std::string> token_bytes_;        // by id
  std::vector<std::string> first_token_bytes_;  // by id
  mutable WordCachePool caches_;
  std::string json_;  // the file
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_PIPELINE_TOKENIZER_H_
