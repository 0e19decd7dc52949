// SPDX-License-Identifier: Apache-2.0
// The kinds of tokenizers that a program has: each registers itself where it is linked in, and
// LoadTokenizer asks them whose a folder is.
//
//   // pipeline_load.cc
//   Claim ClaimOf(const TokenizerFolder& folder) {
//     return folder.Has("vocab.txt") ? Claim::kFiles : Claim::kNone;
//   }
//   const TokenizerRegistration registration({.files = "vocab.txt",
//                                             .claim = ClaimOf,
//                                             .load = LoadLines});
//
// Those of this folder are in every program that links it.
#ifndef TESSERA_DATA_TOKENIZER_TOKENIZER_KIND_H_
#define TESSERA_DATA_TOKENIZER_TOKENIZER_KIND_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/tokenizer/tokenizer.h"

namespace tessera::data {

// What a folder shows before its tokenizer is read.
struct TokenizerFolder {
  std::string path;
  std::string tokenizer_class;  // of tokenizer_config.json; empty where none says so

  // InvalidArgument for a tokenizer_config.json that is no JSON object.
  static StatusOr<TokenizerFolder> Open(const std::string& path);
  bool Has(const char* file) const;
};

// How surely a folder is of a kind; the surest has it. Two kinds may not be equally sure of one.
enum class Claim : uint8_t {
  kNone,
  kFiles,  // by files that other kinds have too, and nothing that would say more
  kClass,  // tokenizer_config.json names its class
  kModel,  // by a file that nobody else reads, whatever lies beside it
  kWhole,  // tokenizer.json, which says all that older files say and more
  kOwn,    // the tokenizer.json is the one that the kind makes of the files beside it
};

// A kind of tokenizer, as it registers itself.
struct TokenizerKind {
  const char* files;                      // what it reads, as "no tokenizer here" lists it
  const char* tokenizer_class = nullptr;  // that tokenizer_config.json must name, listed too
  Claim (*claim)(const TokenizerFolder& folder);
  StatusOr<std::unique_ptr<Tokenizer>> (*load)(const std::string& folder);
};

// A host may load a library that holds these before it can be told of a failure: nothing here takes
// memory.
class TokenizerRegistration {
 public:
  explicit TokenizerRegistration(const TokenizerKind& kind);

 private:
  friend std::vector<TokenizerKind> SortedKinds();
  const TokenizerKind kind_;
  const TokenizerRegistration* const before_;
};

// SentencePiece models in folders of transformers, and the class that such a file is read by where
// tokenizer_config.json names none.
struct SentencePieceFile {
  const char* name;
  const char* tokenizer_class;
};
inline constexpr SentencePieceFile kSentencePieceFiles[] = {
    {"spiece.model", "T5Tokenizer"},
    {"tokenizer.model", "LlamaTokenizer"},
    {"sentencepiece.bpe.model", "XLMRobertaTokenizer"},
    {"ice_text.model", "ChatGLMTokenizer"},
    {"cog-pretrain.model", "GLMChineseTokenizer"}};

// The one that a folder has; nullptr: none.
const SentencePieceFile* FindSentencePieceFile(const TokenizerFolder& folder);

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_TOKENIZER_KIND_H_
