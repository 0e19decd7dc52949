// SPDX-License-Identifier: Apache-2.0
// Learns a byte-pair encoding from counted words: the pair of neighbours that comes most often
// becomes a piece, again and again (R. Sennrich, B. Haddow, A. Birch, "Neural machine translation
// of rare words with subword units", ACL 2016).
//
//   std::vector<CountedWord> words = {{"low", 5}, {"lower", 2}};
//   const LearntPairs learnt = LearnPairs(words, {.vocab_size = 8});
//   // vocab: e l o r w lo low, er; merges: (l, o), (lo, w), (e, r)
//
// Pieces and their order are those of BpeTrainer in Hugging Face's tokenizers: special tokens, the
// alphabet by code point, then pairs by count, and among equal counts by the ids of their parts.
#ifndef TESSERA_DATA_TOKENIZER_TRAINING_PAIR_TRAINER_H_
#define TESSERA_DATA_TOKENIZER_TRAINING_PAIR_TRAINER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tessera::data {

struct CountedWord {
  std::string text;  // valid UTF-8
  int64_t count = 0;
};

struct PairTrainerOptions {
  int64_t vocab_size = 30000;  // with special tokens and alphabet
  int64_t min_frequency = 0;   // a pair that comes less often is no piece
  std::vector<std::string> special_tokens = {};
  // Characters that are pieces even where no word has them; in UTF-8.
  std::vector<std::string> alphabet = {};
  // The share of the words' characters that are pieces: the rarest ones are left out, and words are
  // learnt from without them.
  double character_coverage = 1;
  // In front of pieces that continue a word, "##" for WordPiece.
  std::string continuing_prefix = {};
};

struct LearntPairs {
  std::vector<std::string> vocab;  // a piece's place is its id
  std::vector<std::pair<int32_t, int32_t>> merges;
};

// The same words in the same order give the same pieces. `words` are distinct.
LearntPairs LearnPairs(const std::vector<CountedWord>& words, const PairTrainerOptions& options);

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_TRAINING_PAIR_TRAINER_H_
