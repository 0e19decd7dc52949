// SPDX-License-Identifier: Apache-2.0
// Makes a tokenizer from text, as a folder that Tessera and transformers load.
//
//   TESSERA_ASSIGN_OR_RETURN(
//       TokenizerTrainingResult result,
//       TrainTokenizer({"corpus.txt"}, "out/tokenizer", {.family = "gpt2", .vocab_size = 8000}));
//
// Families of SentencePiece: the pieces are chosen by the trainer of the system's sentencepiece
// library, unigram (Kudo 2018) or byte-pair encoding (Sennrich et al. 2016). A line of text is a
// sentence; blank ones, and those of more than kLongestSentence bytes, are left out.
//
// Families of byte-level BPE (gpt2, llama3, qwen2) and of WordPiece (bert): the pieces are those of
// the trainers of Hugging Face's tokenizers. Of WordPiece's, those and their order vary there from
// run to run; here words count in order of their bytes. A document is cut into words as a whole.
//
// The same text and options give the same bytes, whatever machine it is.
#ifndef TESSERA_DATA_TOKENIZER_TRAINING_TRAIN_TOKENIZER_H_
#define TESSERA_DATA_TOKENIZER_TRAINING_TRAIN_TOKENIZER_H_

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
  // ChatGLM-6B's special ones among the pieces, bytes for unknown characters); "gpt2"
  // (<|endoftext|> 0), "llama3" (<|begin_of_text|> 0, <|end_of_text|> 1, those of its chats behind)
  // or "qwen2" (<|endoftext|> 0, <|im_start|> 1, <|im_end|> 2), which cut text as the published
  // ones do; "bert" ([PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4).
  std::string family = "t5";
  // unigram or bpe for SentencePiece, bpe for byte-level families, wordpiece for bert. Empty: the
  // first that the family has.
  std::string type = {};
  int64_t vocab_size = 8000;  // pieces; tokens behind them, which SentencePiece has, come on top
  // Text is folded to lower case, also when it is encoded later. SentencePiece makes ss of ß, bert
  // takes accents off. Not for byte-level families.
  bool lower_case = false;
  // nmt_nfkc, nfkc or identity (characters stay as they are). Empty: nmt_nfkc for t5, nfkc with
  // lower_case, else identity. For SentencePiece alone.
  std::string normalization = {};
  // Share of the text's characters that become pieces. Byte-level families have all bytes.
  double character_coverage = 0.9995;
  // A pair of pieces that comes less often becomes none. For byte-level families and bert.
  int64_t min_frequency = 2;
  int64_t max_sentences = 0;  // so many, spread over the text; 0: all. For SentencePiece alone
  TextFormat format = TextFormat::kAuto;
  std::vector<std::string> json_keys = {"text"};  // members of JSON lines that hold text

  static const OptionTable& Table();
};

struct TokenizerTrainingResult {
  int64_t num_pieces = 0;
  int64_t num_ids = 0;    // pieces and the tokens behind them
  int64_t num_texts = 0;  // lines of SentencePiece's, documents of the others
  bool of_lines = true;
  std::string model_file;  // the model's name in the folder
};

// `inputs` as ListInputFiles takes them. `folder` is made; files of a tokenizer in it are replaced.
// InvalidArgument for options and text that do not go together: for SentencePiece also too little
// text for the size, where the others have fewer pieces.
StatusOr<TokenizerTrainingResult> TrainTokenizer(const std::vector<std::string>& inputs,
                                                 const std::string& folder,
                                                 const TokenizerTrainingOptions& options);

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_TRAINING_TRAIN_TOKENIZER_H_
