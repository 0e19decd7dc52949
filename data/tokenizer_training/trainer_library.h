// SPDX-License-Identifier: Apache-2.0
// The sentencepiece library's trainer behind plain types: its headers declare names of Abseil that
// differ from the distribution's Abseil, so that one source file alone (trainer_library.cc)
// includes them. For train_sentence_piece.cc only.
#ifndef TESSERA_DATA_TOKENIZER_TRAINING_TRAINER_LIBRARY_H_
#define TESSERA_DATA_TOKENIZER_TRAINING_TRAINER_LIBRARY_H_

#include <string>
#include <unordered_map>
#include <vector>

namespace tessera::data {

// Trains with the library's options, `--name=value` of spm_train without the dashes. Returns the
// model's bytes; empty: it failed, and *error says why.
std::string RunSentencePieceTrainer(const std::unordered_map<std::string, std::string>& options,
                                    const std::vector<std::string>& sentences, std::string* error);

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_TRAINING_TRAINER_LIBRARY_H_
