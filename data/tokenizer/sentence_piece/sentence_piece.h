// SPDX-License-Identifier: Apache-2.0
// SentencePiece tokenizers: T5's, ALBERT's, LLaMA's, XLM-RoBERTa's, GLM's Chinese one and
// ChatGLM-6B's.
//
//   TESSERA_ASSIGN_OR_RETURN(auto tokenizer, SentencePieceTokenizer::Load("models/t5-small"));
//   tokenizer->Encode("Hello <extra_id_0> world");   // {8774, 32099, 296} by t5-small
//   tokenizer->FindSpecial("<extra_id_0>");          // 32099
//
// Text is cut at the added tokens, prepared as the family does, and what lies between is segmented
// as the SentencePiece library does (Kudo and Richardson 2018; model.h). Ids and decoded text are
// those of transformers' T5Tokenizer, AlbertTokenizer, LlamaTokenizer and XLMRobertaTokenizer (the
// ones in Python, not the "fast" ones) and of THUDM's GLMChineseTokenizer and ChatGLMTokenizer.
// Encode leaves out the special tokens around a text; sequence_pair.h adds them.
//
// ChatGLM's: "\n" becomes the piece <n>, a tab <|tab|>, n blanks <|blank_n|> (n = 2 .. 80), and
// each id is moved up by `num_image_tokens`, which have no text.
#ifndef TESSERA_DATA_TOKENIZER_SENTENCE_PIECE_SENTENCE_PIECE_H_
#define TESSERA_DATA_TOKENIZER_SENTENCE_PIECE_SENTENCE_PIECE_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/sentence_piece/model.h"
#include "data/tokenizer/tokenizer.h"

namespace tessera::data {

enum class SentencePieceFamily { kT5, kAlbert, kLlama, kXlmRoberta, kGlm, kChatGlm };

// What the files of a folder say. Names that are empty: the tokenizer has no such token.
struct SentencePieceConfig {
  SentencePieceFamily family = SentencePieceFamily::kT5;
  std::string model;       // the bytes of the .model file
  std::string model_file;  // its name
  std::string bos_token;
  std::string eos_token;
  std::string unk_token;
  std::string sep_token;
  std::string pad_token;
  std::string cls_token;
  std::string mask_token;
  bool mask_lstrip = false;  // the mask takes the blank before it along
  std::vector<std::string> additional_special_tokens;
  std::vector<AddedToken> added_tokens;  // with their ids; others come behind the last one
  int extra_ids = 0;                     // T5: <extra_id_i> at ids descending from the last
  bool legacy = true;                    // T5, LLaMA: a blank before each part between added tokens
  bool add_prefix_space = true;
  bool add_bos = true;  // LLaMA, in rows
  bool add_eos = false;
  bool do_lower_case = false;
  bool remove_space = false;  // runs of white space become one blank (ALBERT, ChatGLM)
  bool keep_accents = true;
  bool clean_up_spaces = false;  // in decoded text: none before punctuation
  int32_t num_image_tokens = 0;
};

class SentencePieceTokenizer : public Tokenizer {
 public:
  // The member of tokenizer_config.json that keeps the family's class where "tokenizer_class" is
  // the one that takes a tokenizer.json as it is: transformers 5 builds every other anew.
  static constexpr const char* kClassKey = "sentence_piece_class";

  // `source` (a path) begins the message when the model is damaged or tokens do not fit together.
  static StatusOr<std::unique_ptr<SentencePieceTokenizer>> Create(SentencePieceConfig config,
                                                                  const std::string& source);

  // Reads the model and, where they exist, tokenizer_config.json, special_tokens_map.json and
  // added_tokens.json. The family is kClassKey, `tokenizer_class`, else what the model's file name
  // suggests.
  static StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& folder);

  // With parse_special false no added token is found, special or not; the pieces that a model holds
  // as symbols of its own are.
  void EncodeTo(std::string_view text, const EncodeOptions& options,
                std::vector<int32_t>* ids) const override;
  std::string Decode(std::span<const int32_t> ids,
                     const DecodeOptions& options = {}) const override;
  // With a blank for "▁".
  std::string_view TokenBytes(int32_t id) const override;
  std::string_view FirstTokenBytes(int32_t id) const override;
  int64_t vocab_size() const override { return std::ssize(token_bytes_); }
  // A tokenizer.json with the ids of this tokenizer, for transformers; empty for a family or model
  // that cannot be written so.
  std::string TokenizerJsonText() const;
  uint64_t Fingerprint() const override;

  const SentencePieceConfig& config() const { return config_; }

 private:
  // The model, tokenizer_config.json and, of the families that transformers knows, tokenizer.json.
  std::vector<TokenizerFile> Files() const override;
  std::string ConfigJson(bool has_tokenizer_json) const;
  std::string NormalizerJson(const SentencePieceSpec& spec) const;
  std::string ModelJson(const SentencePieceSpec& spec) const;
  explicit SentencePieceTokenizer(SentencePieceConfig config) : config_(std::move(config)) {}
  Status Build(const std::string& source);
  Status AddTokens(const std::string& source);
  Status AddToken(AddedToken token, const std::string& source);
  void NameTokens();
  using Rows = std::pair<std::optional<RowTemplate>, std::optional<RowTemplate>>;
  void SetRows();
  Rows LlamaRows() const;
  void FillTokenBytes();
  bool DropsFirstBlank() const;
  std::optional<int32_t> IdOf(const std::string& token) const;
  int32_t IdOfPiece(int32_t piece) const;  // the tokenizer's id of one of the model
  int32_t PieceOfId(int32_t id) const;     // and back; < 0: it has none
  const AddedToken* FindAdded(int32_t id) const { return FindById(added_, id); }

  // The parts of a text between added tokens, which are stripped as the tokens ask for.
  std::vector<TextPiece> Cut(std::string_view text, bool parse_special) const;
  void EncodePart(std::string_view text, std::vector<int32_t>* ids) const;
  void EncodeAlbert(const std::string& text, std::vector<int32_t>* pieces) const;
  std::string Prepare(std::string_view text) const;

  std::string TokenString(int32_t id) const;
  std::string JoinTokens(std::vector<std::pair<std::string, bool>> tokens) const;

  SentencePieceConfig config_;
  std::unique_ptr<SentencePieceModel> model_;
  // Not legacy: the model puts no blank in front, and makes so many pieces of unk_token.
  bool bare_ = false;
  size_t unk_length_ = 0;
  std::vector<AddedToken> added_;  // by id
  std::vector<bool> separate_;     // by place in added_: decoded as a text of its own
  AddedTokenMatcher matcher_;
  std::vector<std::string> token_bytes_;  // by id
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_SENTENCE_PIECE_SENTENCE_PIECE_H_
