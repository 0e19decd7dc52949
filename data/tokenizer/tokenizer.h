// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back.
//
//   TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer("gpt2-folder"));
//   std::vector<int32_t> ids = tokenizer->Encode("Hello world");   // {15496, 995}
//   std::string bytes = tokenizer->Decode(ids);                    // "Hello world"
//
// The kinds: those made of parts as a tokenizer.json describes them, GPT-2's, RoBERTa's and BERT's
// among them (pipeline_tokenizer.h), SentencePiece as T5's, ALBERT's, LLaMA's and GLM's
// (sentence_piece/), bytes (byte_tokenizer.h) and Unicode characters (char_tokenizer.h);
// tokenizer_kind.h says how there come to be more. Any bytes may be encoded, UTF-8 or not. Encoding
// and decoding are const and safe from several threads at once. See streaming_decoder.h for showing
// text while it is being generated.
#ifndef TESSERA_DATA_TOKENIZER_TOKENIZER_H_
#define TESSERA_DATA_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace tessera::data {

// The text of the token that separates documents, in every kind of tokenizer.
inline constexpr std::string_view kEndOfText = "<|endoftext|>";

struct EncodeOptions {
  // Special tokens written out in the text ("<|endoftext|>") become their ids, as Hugging Face's
  // tokenizers do; false: they are text like any other. The byte and character tokenizers always
  // take them for text.
  bool parse_special = true;
};

// How ids become text.
struct DecodeOptions {
  bool skip_special = false;  // special tokens give nothing, else their text
};

// A token that is no text.
struct SpecialToken {
  std::string content;
  int32_t id;
};

// The row that one text or two become (sequence_pair.h): special tokens by their ids, and the
// places of the texts.
struct RowTemplate {
  static constexpr int32_t kFirst = -1;
  static constexpr int32_t kSecond = -2;
  struct Item {
    int32_t id = 0;  // kFirst, kSecond or a token's
    int32_t type_id = 0;
    bool operator==(const Item&) const = default;
  };
  std::vector<Item> items;
  // A text that ends with this token brings its end along and loses it. < 0: none does.
  int32_t text_end = -1;
  bool operator==(const RowTemplate&) const = default;

  // Ids and their types in order; nullopt where one of the tokens does not exist.
  static std::optional<RowTemplate> Of(
      std::initializer_list<std::pair<std::optional<int32_t>, int32_t>> items);
};

// A file of a tokenizer's folder.
struct TokenizerFile {
  std::string name;  // in the folder; of a chat template it may hold a folder's name
  std::string content;
  // Written even where the tokenizer was read from a file of that name.
  bool replaces = false;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options = {}) const {
    std::vector<int32_t> ids;
    EncodeTo(text, options, &ids);
    return ids;
  }

  // Appends to *ids instead.
  virtual void EncodeTo(std::string_view text, const EncodeOptions& options,
                        std::vector<int32_t>* ids) const = 0;

  // The tokens' bytes one after the other: not always UTF-8, as a character may be cut. Ids without
  // a token (a model's padded vocabulary has some) give nothing.
  // WordPiece puts blanks between words.
  virtual std::string Decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const;
  // Of ids as tensors and GenerationResult have them.
  std::string Decode(const std::vector<int64_t>& ids, const DecodeOptions& options = {}) const {
    return Decode(std::vector<int32_t>(ids.begin(), ids.end()), options);
  }

  // The bytes of one token; empty for an id without one. Valid as long as the tokenizer.
  virtual std::string_view TokenBytes(int32_t id) const = 0;

  // One more than the largest id.
  virtual int64_t vocab_size() const = 0;

  // Tokens that are no text. At most a few; sorted by id.
  const std::vector<SpecialToken>& special_tokens() const { return special_tokens_; }
  bool IsSpecial(int32_t id) const;
  // The id of a special token by its text.
  std::optional<int32_t> FindSpecial(std::string_view content) const;

  // The token that ends a document, and those that begin a text and fill up rows, where they exist.
  std::optional<int32_t> eos_id() const { return eos_id_; }
  std::optional<int32_t> bos_id() const { return bos_id_; }
  std::optional<int32_t> pad_id() const { return pad_id_; }
  // Of encoders: what begins a row, ends each text in it, and stands for a token to be guessed.
  std::optional<int32_t> cls_id() const { return cls_id_; }
  std::optional<int32_t> sep_id() const { return sep_id_; }
  std::optional<int32_t> mask_id() const { return mask_id_; }
  // The row of one text, or of two; nullptr for a tokenizer that makes no such rows.
  const RowTemplate* row_template(bool pair) const {
    const std::optional<RowTemplate>& row = pair ? pair_row_ : single_row_;
    return row ? &*row : nullptr;
  }
  // The tokens before a text in its row: what begins texts that are learnt from (Llama's <s>). None
  // where that is cls, which tasks of encoders place themselves.
  std::vector<int32_t> text_begin() const;
  // Whether a prompt is a row as well, special tokens included; else it is its text alone.
  bool prompts_are_rows() const { return prompts_are_rows_; }

  // The bytes of a token that begins a text: SentencePiece drops the blank there, and continues
  // doing so until there is some text.
  virtual std::string_view FirstTokenBytes(int32_t id) const { return TokenBytes(id); }
  bool drops_blanks_until_text() const { return drops_blanks_until_text_; }
  // Whether Decode takes white space off both ends of a text.
  bool strips_text() const { return strips_text_; }

  // What LoadTokenizer needs of a folder: the files of the one that it was loaded from, as they
  // were (with chat templates and whatever else transformers keeps there), and those of Files()
  // that were not among them.
  std::vector<TokenizerFile> FilesToSave() const;
  // Writes them into an existing folder, each atomically.
  Status Save(const std::string& folder) const { return WriteFiles(FilesToSave(), folder); }
  static Status WriteFiles(const std::vector<TokenizerFile>& files, const std::string& folder);

  // What LoadTokenizer read; empty for a tokenizer that was made.
  const std::vector<TokenizerFile>& source_files() const { return source_files_; }
  void set_source_files(std::vector<TokenizerFile> files) { source_files_ = std::move(files); }

  // Equal for tokenizers that encode alike; part of the key of cached token files.
  virtual uint64_t Fingerprint() const = 0;

 protected:
  Tokenizer() = default;
  // The files that this tokenizer can be read from again, by Tessera and by transformers 4 and 5.
  virtual std::vector<TokenizerFile> Files() const = 0;
  void set_special_tokens(std::vector<SpecialToken> tokens);
  // Of one text: cls a sep; of two, cls a sep b sep, the second of type 1 (BERT), or cls a sep sep
  // b sep (RoBERTa).
  void SetBertRows();
  void SetRobertaRows();
  void set_rows(std::optional<RowTemplate> single, std::optional<RowTemplate> pair,
                bool of_prompts) {
    single_row_ = std::move(single);
    pair_row_ = std::move(pair);
    prompts_are_rows_ = of_prompts;
  }

  std::optional<int32_t> eos_id_;
  std::optional<int32_t> bos_id_;
  std::optional<int32_t> pad_id_;
  std::optional<int32_t> cls_id_;
  std::optional<int32_t> sep_id_;
  std::optional<int32_t> mask_id_;
  bool strips_text_ = false;
  bool drops_blanks_until_text_ = false;

 private:
  std::vector<SpecialToken> special_tokens_;
  std::vector<TokenizerFile> source_files_;
  std::optional<RowTemplate> single_row_;
  std::optional<RowTemplate> pair_row_;
  bool prompts_are_rows_ = false;
};

// `spec` is "byte" or a folder, read by the kind that is surest of it (tokenizer_kind.h):
//   tokenizer.json, where there is one, whatever older files lie beside it: it alone knows all
//   added
//     tokens. A part of it that is not supported is named in the status. Else
//   a SentencePiece model (spiece.model, tokenizer.model, sentencepiece.bpe.model, ice_text.model,
//     cog-pretrain.model); else
//   tokenizer_config.json with "tokenizer_class" "TesseraByteTokenizer" or "TesseraCharTokenizer"
//     (the latter with char_vocab.json beside it), as Save writes them, or "BertTokenizer" and
//     the like; else
//   vocab.json + merges.txt, or encoder.json + vocab.bpe (GPT-2, RoBERTa); else
//   vocab.txt (WordPiece).
// NotFound if it is none of these. "char" is InvalidArgument here: such a tokenizer is made from
// text (CharTokenizer::Train, or MakeTokenizer in data/dataset/tokenize.h).
StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& spec);
// Whether a folder holds one of any kind, sound or not.
bool HasTokenizer(const std::string& folder);

// What the tokenizer of a folder is saved as; of one that cannot be loaded the files that are
// there, of a folder without one nothing.
StatusOr<std::vector<TokenizerFile>> TokenizerFilesOf(const std::string& folder);

// Mixes `bytes` into a running FNV-1a hash; for fingerprints.
uint64_t HashBytes(std::string_view bytes, uint64_t hash = 0xCBF29CE484222325u);

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_TOKENIZER_H_
