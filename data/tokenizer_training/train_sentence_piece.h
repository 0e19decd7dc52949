// SPDX-License-Identifier: Apache-2.0
// Makes a SentencePiece tokenizer from text, as a folder that Tessera and transformers load.
//
//   TESSERA_ASSIGN_OR_RETURN(
//       TokenizerTrainingResult result,
//       TrainSentencePiece({"corpus.txt"}, "out/tokenizer", {.vocab_size = 8000}));
//
// The pieces are chosen by the trainer of the system's sentencepiece library: unigram (Kudo 2018)
// or byte-pair encoding (Sennrich et al. 2016). A line of text is a sentence; blank ones, and those
// of more than kLongestSentence bytes, are left out. The same text and options give the same bytes,
// whatever machine it is.
#ifndef TESSERA_DATA_TOKENIZER_TRAINING_TRAIN_SENTENCE_PIECE_H_
#define TESSERA_DATA_TOKENIZER_TRAINING_TRAIN_SENTENCE_PIECE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/options_fwd.h"
#include "base/status.h"
#include "data/dataset/text_input.h"

namespace tessera::data {

inline constexpr int64_t kLongestSentence = 1 << 16;  // bytes

struct TokenizerTrainingOptions {
  // Whose special tokens and file names: "t5" (pad 0, </s> 1, <unk> 2, and <extra_id_0..99> behind
  // the pieces), "llama" (<unk> 0, <s> 1, </s> 2, bytes for unknown characters), "glm" (the special
  // tokens of GLM's Chinese tokenizer behind the pieces) or "chatglm" (pieces for white space and
  // ChatGLM-6B's special ones among the pieces, bytes for unknown characters).
  std::string family = "t5";
  std::string type = "unigram";  // or "bpe"
  int64_t vocab_size = 8000;     // pieces; tokens behind them come on top
  // Text is folded to lower case (ß becomes ss), also when it is encoded later.
  bool lower_case = false;
  // nmt_nfkc, nfkc or identity (characters stay as they are). Empty: nmt_nfkc for t5, nfkc with
  // lower_case, else identity.
  std::string normalization = {};
  double character_coverage = 0.9995;  // share of the text's characters that become pieces
  int64_t max_sentences = 0;           // so many, spread over the text; 0: all
  TextFormat format = TextFormat::kAuto;
  std::vector<std::string> json_keys = {"text"};  // members of JSON lines that hold text

  static const OptionTable& Table();
};

struct TokenizerTrainingResult {
  int64_t num_pieces = 0;
  int64_t num_ids = 0;  // pieces and the tokens behind them
  int64_t num_sentences = 0;
  std::string model_file;  // the model's name in the folder
};

// `inputs` as ListInputFiles takes them. `folder` is made; files of a tokenizer in it are replaced.
// InvalidArgument for options and text that do not go together (too little text for the size).
StatusOr<TokenizerTrainingResult> TrainSentencePiece(const std::vector<std::string>& inputs,
                                                     const std::string& folder,
                                                     const TokenizerTrainingOptions& options);

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_TRAINING_TRAIN_SENTENCE_PIECE_H_
