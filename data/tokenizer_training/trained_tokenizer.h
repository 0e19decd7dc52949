// SPDX-License-Identifier: Apache-2.0
// What TrainTokenizer writes, and who makes it: the families of SentencePiece, and those of
// byte-level BPE and of WordPiece. For this folder only.
#ifndef TESSERA_DATA_TOKENIZER_TRAINING_TRAINED_TOKENIZER_H_
#define TESSERA_DATA_TOKENIZER_TRAINING_TRAINED_TOKENIZER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "data/tokenizer_training/train_tokenizer.h"

namespace tessera::data {

struct TrainedTokenizer {
  std::vector<std::pair<std::string, std::string>> files = {};  // the model's first
  int64_t num_pieces = 0;
  int64_t num_texts = 0;
  bool of_lines = true;
};

// "t5", "llama", "glm", "chatglm".
std::vector<std::string> SentencePieceFamilies();
// "gpt2", "llama3", "qwen2", "bert".
std::vector<std::string> PairEncodingFamilies();

// From the texts of `files`; `options.family` is one of the families.
StatusOr<TrainedTokenizer> TrainSentencePiece(std::vector<std::string> files,
                                              const TokenizerTrainingOptions& options);
StatusOr<TrainedTokenizer> TrainPairEncoding(std::vector<std::string> files,
                                             const TokenizerTrainingOptions& options);

// The documents of `files`, by each of the keys where they are records.
Status ForEachTrainingText(std::vector<std::string> files, const TokenizerTrainingOptions& options,
                           const DocumentVisitor& visit);

std::string Joined(const std::vector<std::string>& parts, const char* between);

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_TRAINING_TRAINED_TOKENIZER_H_
