// SPDX-License-Identifier: Apache-2.0
// A tokenizer made of parts, as a tokenizer.json describes them: normalizer, splitter, model,
// templates of rows, and decoder (pipeline_*.h list the types of each).
//
//   TESSERA_ASSIGN_OR_RETURN(auto tokenizer, LoadTokenizer("folder"));
//   tokenizer->Encode("Hello world");
//
//   TokenizerDescription bytes = {.path = "test", .tokenizer_class = TokenizerClass::kGpt2};
//   bytes.json.root = {{"model", {{"type", "BPE"}}}, {"pre_tokenizer", {{"type", "ByteLevel"}}}};
//   bytes.json.large = {.vocab = {{"a", 0}, {"b", 1}, {"ab", 2}}, .merges = {{"a", "b"}}};
//   TESSERA_ASSIGN_OR_RETURN(auto made, PipelineTokenizer::Create(std::move(bytes)));
//
// pipeline_load.cc reads descriptions from tokenizer.json, vocab.json and merges.txt, and
// vocab.txt. Text is cut at the added tokens, normalised, cut at the added tokens that are written
// as normalised text, and split into words, of which the model makes ids. Ids, and the special
// tokens that sequence_pair.h puts around them, are those of Hugging Face's tokenizers. A part that
// is not supported is InvalidArgument with its place in the file. Text that is not UTF-8 is encoded
// with U+FFFD for what is wrong, by GPT-2's and RoBERTa's classes as it is.
#ifndef TESSERA_DATA_TOKENIZER_PIPELINE_TOKENIZER_H_
#define TESSERA_DATA_TOKENIZER_PIPELINE_TOKENIZER_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/declared_tokens.h"
#include "data/tokenizer/pipeline_decoder.h"
#include "data/tokenizer/pipeline_model.h"
#include "data/tokenizer/pipeline_normalizer.h"
#include "data/tokenizer/pipeline_splitter.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_json_file.h"
#include "data/tokenizer/word_cache.h"

namespace tessera::data {

// The classes of transformers whose tokenizers are more than a tokenizer.json says: special tokens
// have names by default, tokenizer_config.json has switches, and older files belong to them.
enum class TokenizerClass : uint8_t {
  kGeneral,  // all that is to be known is in the tokenizer.json
  kGpt2,     // byte-level BPE alone
  kRoberta,  // GPT-2's, with <s> and </s> around texts
  kBert,     // BERT's normalizer, splitter and WordPiece
};

// Whether rows begin or end with a token, whatever their templates say.
struct RowEnd {
  std::optional<bool> adds = {};  // absent: as the templates say
  std::string usual_name = {};    // of the token where no file names it
};

// What the files of a folder say of a tokenizer.
struct TokenizerDescription {
  std::string path;             // of the vocabulary; begins messages
  TokenizerJsonFile json = {};  // a tokenizer.json, or what one would say
  TokenizerClass tokenizer_class = TokenizerClass::kGeneral;
  bool is_file = false;  // `json` was a file: BERT's tokens may lack names
  DeclaredTokens declared = {};
  // tokenizer_config.json, where it says so.
  std::optional<bool> clean_up_spaces = {};  // in decoded text: none before punctuation
  bool split_special = false;                // special tokens in texts are ordinary text
  RowEnd bos = {};
  RowEnd eos = {};
};

class PipelineTokenizer : public Tokenizer {
 public:
  static StatusOr<std::unique_ptr<Tokenizer>> Create(TokenizerDescription description);

  // Long texts are encoded in parallel where words are GPT-2's (core/thread_pool.h); the ids are
  // the same.
  void EncodeTo(std::string_view text, const EncodeOptions& options,
                std::vector<int32_t>* ids) const override;
  using Tokenizer::Decode;
  std::string Decode(std::span<const int32_t> ids,
                     const DecodeOptions& options = {}) const override;
  // What the decoder makes of the token behind others. Words that are told apart by a suffix
  // (BPEDecoder) lack their blanks here, and so in what StreamingDecoder gives.
  std::string_view TokenBytes(int32_t id) const override;
  std::string_view FirstTokenBytes(int32_t id) const override;
  int64_t vocab_size() const override { return std::ssize(token_bytes_); }
  uint64_t Fingerprint() const override;

 private:
  explicit PipelineTokenizer(TokenizerClass tokenizer_class) : class_(tokenizer_class) {}
  bool is_byte_level() const {
    return class_ == TokenizerClass::kGpt2 || class_ == TokenizerClass::kRoberta;
  }
  // pipeline_files.cc: tokenizer.json, and what older versions of transformers keep of the class.
  std::vector<TokenizerFile> Files() const override;
  std::string JsonText(bool spells_out = false) const;
  std::string NameLines(
      std::initializer_list<std::pair<const char*, std::optional<int32_t>>> names) const;

  Status Build(TokenizerDescription description);
  Status ReadParts(const JsonPart& root, std::optional<TokenizerJsonFile::LargeParts>* large);
  // The tokens that the files beside it declare, and those that have a role.
  Status AddDeclared(TokenizerDescription* description);
  Status NameTokens(const TokenizerDescription& description);
  Status SetRowEnds(const TokenizerDescription& description);
  std::string DefaultName(std::string_view key, bool is_file) const;
  std::optional<int32_t> IdOf(std::string_view text) const;
  void SetMatchers();
  void FillTokenBytes();
  void FillDecodedBytes();
  std::string_view TokenText(int32_t id) const;

  // Normalised text without added tokens, and a part of it.
  void EncodeText(std::string_view text, bool at_begin, std::vector<int32_t>* ids) const;
  void EncodeChunk(std::string_view text, bool at_begin, std::vector<int32_t>* ids) const;

  const TokenizerClass class_;
  PipelineNormalizer normalizer_;
  PipelineSplitter splitter_;
  std::unique_ptr<PipelineModel> model_;
  PipelineDecoder decoder_;
  std::vector<AddedToken> added_;         // by id
  AddedTokenMatcher matcher_;             // in the text as it is
  AddedTokenMatcher normalized_matcher_;  // in normalised text
  std::optional<bool> clean_up_spaces_;   // not said: BERT's class does
  bool split_special_ = false;
  std::vector<std::string> token_bytes_;        // by id
  std::vector<std::string> first_token_bytes_;  // by id; empty: as token_bytes_
  mutable WordCachePool caches_;
  // The ends of rows that tokenizer_config.json asks for, as a part of fingerprints; empty: rows
  // are as the templates say.
  std::string row_ends_;
  // To be saved again: the file, and of classes what it says, with the merges apart.
  std::string json_text_;
  nlohmann::json json_;
  BpeRules merges_;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_PIPELINE_TOKENIZER_H_
