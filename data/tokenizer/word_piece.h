// SPDX-License-Identifier: Apache-2.0
// WordPiece, BERT's tokenizer (Devlin et al. 2018; Schuster and Nakajima 2012).
//
//   TESSERA_ASSIGN_OR_RETURN(auto tokenizer, WordPiece::Load("models/bert-base-uncased"));
//   tokenizer->Encode("Unaffable!");     // un ##aff ##able !
//   tokenizer->Decode(ids);              // "unaffable!"
//
// Text is cut at the added tokens, normalised and cut into words (bert_normalizer.h), and each word
// into pieces (word_piece_vocab.h), those behind the first written "##piece". The ids are those of
// Hugging Face's BertTokenizerFast, without the [CLS] and [SEP] that sequence_pair.h puts around
// them.
#ifndef TESSERA_DATA_TOKENIZER_WORD_PIECE_H_
#define TESSERA_DATA_TOKENIZER_WORD_PIECE_H_

#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bert_normalizer.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/word_piece_vocab.h"

namespace tessera::data {

// Ids are below.
inline constexpr int32_t kMaxWordPieceId = 1 << 22;

struct WordPieceConfig {
  std::vector<std::string> vocab;  // by id; of a piece that is there twice the last one counts
  BertNormalizerOptions normalizer;
  std::vector<AddedToken> added_tokens;
  // A tokenizer has each of these that is not empty; the first three it must have.
  std::string unk_token = "[UNK]";
  std::string cls_token = "[CLS]";
  std::string sep_token = "[SEP]";
  std::string pad_token = "[PAD]";
  std::string mask_token = "[MASK]";
};

class WordPiece : public Tokenizer {
 public:
  // `source` (a path) begins the message when a special token is not in the vocabulary.
  static StatusOr<std::unique_ptr<WordPiece>> Create(WordPieceConfig config,
                                                     const std::string& source);

  // Reads a tokenizer.json that describes BERT's tokenizer, else vocab.txt (a piece a line); and
  // from tokenizer_config.json, where there is one, do_lower_case, strip_accents and
  // tokenize_chinese_chars, and the special tokens that it and the files beside it declare
  // (declared_tokens.h). What would change ids and is not supported is named in the status.
  static StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& folder);

  void EncodeTo(std::string_view text, const EncodeOptions& options,
                std::vector<int32_t>* ids) const override;
  // As transformers: pieces glued, blanks between words, none before punctuation.
  std::string Decode(std::span<const int32_t> ids,
                     const DecodeOptions& options = {}) const override;
  // "ing" for ##ing, and with a blank in front for what begins a word.
  std::string_view TokenBytes(int32_t id) const override;
  int64_t vocab_size() const override { return std::ssize(token_bytes_); }
  uint64_t Fingerprint() const override;

  const WordPieceConfig& config() const { return config_; }

 private:
  // vocab.txt, tokenizer.json and tokenizer_config.json.
  std::vector<TokenizerFile> Files() const override;
  explicit WordPiece(WordPieceConfig config)
      : config_(std::move(config)), normalizer_(config_.normalizer) {}
  Status Build(const std::string& source);
  Status AddTokens(const std::string& source);
  void EncodeText(std::string_view text, std::vector<int32_t>* ids) const;

  WordPieceConfig config_;
  const BertNormalizer normalizer_;
  WordPieceVocab pieces_;
  std::vector<std::string> token_bytes_;  // by id
  AddedTokenMatcher matcher_;             // in the text as it is
  AddedTokenMatcher normalized_matcher_;  // in normalised text
  int32_t unk_id_ = 0;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_WORD_PIECE_H_
