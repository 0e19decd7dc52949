// SPDX-License-Identifier: Apache-2.0
// Byte-level byte-pair encoding: GPT-2's tokenizer and those made like it.
//
//   TESSERA_ASSIGN_OR_RETURN(auto tokenizer, ByteLevelBpe::Load("models/gpt2"));
//   tokenizer->Encode(" Hello<|endoftext|>");   // {18435, 50256}
//
// Text is cut at the added tokens (added_tokens.h), split into words (gpt2_split.h), and the bytes
// of each word are merged by rank (bpe_merges.h). A. Radford et al., "Language models are
// unsupervised multitask learners", 2019. The ids are those of Hugging Face's GPT2TokenizerFast.
//
// In the files a byte is written as one character: printable ones of Latin-1 as themselves, the
// others from U+0100 on, so that a space is "Ġ" (`BytePiece`).
#ifndef TESSERA_DATA_TOKENIZER_BYTE_LEVEL_BPE_H_
#define TESSERA_DATA_TOKENIZER_BYTE_LEVEL_BPE_H_

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bpe_merges.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_json_file.h"
#include "data/tokenizer/vocab_index.h"
#include "data/tokenizer/word_cache.h"

namespace tessera::data {

// What the files of a byte-level BPE say. Pieces are in the files' notation of bytes.
struct ByteLevelBpeConfig {
  VocabEntries vocab;                                       // any order
  std::vector<std::pair<std::string, std::string>> merges;  // by rank
  std::vector<AddedToken> added_tokens;
  bool add_prefix_space = false;         // each piece of text gets a space in front if it has none
  bool use_regex = true;                 // false: no splitting into words
  bool ignore_merges = false;            // a word that is a token needs no merging
  std::optional<std::string> unk_token;  // for bytes that have no token; without it they are lost
  bool fuse_unk = false;                 // one for several such bytes in a row
  std::optional<std::string> eos_token;  // default <|endoftext|> where that is a token
  std::optional<std::string> bos_token;
  std::optional<std::string> pad_token;
  // RoBERTa's: <s> and </s> around texts (sequence_pair.h), <mask>.
  bool roberta = false;
  std::optional<std::string> cls_token;
  std::optional<std::string> sep_token;
  std::optional<std::string> mask_token;
};

class ByteLevelBpe : public Tokenizer {
 public:
  // `source` (a path) begins the message when the parts do not fit together: a merge whose result
  // is no token, an id given twice, an id of 2^22 or more.
  static StatusOr<std::unique_ptr<ByteLevelBpe>> Create(ByteLevelBpeConfig config,
                                                        const std::string& source);

  // Reads tokenizer.json, or vocab.json + merges.txt, or encoder.json + vocab.bpe; and from
  // tokenizer_config.json, where there is one, add_prefix_space, and the special tokens that it and
  // the files beside it declare (declared_tokens.h). A part that would change ids and is not
  // supported (a normalizer, another pre-tokenizer, ...) is named in the status.
  static StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& folder);
  // The same of a folder whose tokenizer.json has been read.
  static StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& folder,
                                                   TokenizerJsonFile json);

  // Long texts are encoded in parallel (core/thread_pool.h); the ids are the same.
  void EncodeTo(std::string_view text, const EncodeOptions& options,
                std::vector<int32_t>* ids) const override;
  std::string_view TokenBytes(int32_t id) const override;
  int64_t vocab_size() const override { return std::ssize(token_bytes_); }
  uint64_t Fingerprint() const override;

  const ByteLevelBpeConfig& config() const { return config_; }

 private:
  // tokenizer.json, tokenizer_config.json, vocab.json and merges.txt.
  std::vector<TokenizerFile> Files() const override;
  explicit ByteLevelBpe(ByteLevelBpeConfig config) : config_(std::move(config)) {}
  static StatusOr<std::unique_ptr<Tokenizer>> Finish(const std::string& folder, bool plain,
                                                     ByteLevelBpeConfig config);
  Status Build(const std::string& source);
  Status AddToken(const std::string& piece, int32_t id, std::string bytes,
                  const std::string& source);
  Status BuildTokens(const std::string& source);
  Status BuildIndex(const std::string& source);
  Status BuildMerges(const std::string& source);
  Status BuildSpecials(const std::string& source);
  std::optional<int32_t> IdOf(std::string_view piece) const;

  void EncodeText(std::string_view text, std::vector<int32_t>* ids) const;
  void EncodeChunk(std::string_view text, WordCache* cache, std::vector<int32_t>* ids) const;
  void EncodeWord(std::string_view word, std::vector<int32_t>* word_ids) const;

  ByteLevelBpeConfig config_;
  VocabIndex vocab_ids_;
  std::unordered_map<std::string, int32_t> added_ids_;  // of added tokens that it lacks
  std::vector<std::string> token_bytes_;                // by id
  std::vector<bool> has_token_;                         // by id
  std::array<int32_t, 256> byte_ids_{};                 // < 0: the byte has no token
  int32_t unk_id_ = -1;
  BpeMerges merges_;
  std::unordered_map<std::string, int32_t> word_ids_;  // for ignore_merges, by bytes
  AddedTokenMatcher matcher_;

  mutable WordCachePool caches_;
};

// How the files write one byte, in UTF-8.
const std::string& BytePiece(uint8_t byte);

// `bytes` in the files' notation.
std::string PieceOfBytes(std::string_view bytes);

// The bytes that a piece stands for; nullopt if it has a character that stands for no byte.
std::optional<std::string> BytesOfPiece(std::string_view piece);

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_BYTE_LEVEL_BPE_H_
