// SPDX-License-Identifier: Apache-2.0
// The segmentation of a text into pieces with the highest sum of scores (T. Kudo, "Subword
// regularization", ACL 2018), by Viterbi's algorithm over the bytes of the text.
//
//   const Unigram<float> unigram({{"a", 0}, {"ab", 1}}, /*scores=*/{-1.0, -1.5},
//                                /*unknown_score=*/-11);
//   std::vector<Unigram<float>::Piece> pieces;
//   unigram.Segment("abc", &pieces);   // {{0, 2, 1}, {2, 3, kUnknown}}
//
// `Score` is what sums are kept in: float as the SentencePiece library has them, double as Hugging
// Face's tokenizers. Of equal sums the piece that begins first counts. Immutable; safe from several
// threads.
#ifndef TESSERA_DATA_TOKENIZER_UNIGRAM_H_
#define TESSERA_DATA_TOKENIZER_UNIGRAM_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizer/byte_trie.h"

namespace tessera::data {

template <typename Score>
class Unigram {
 public:
  static constexpr int32_t kUnknown = -1;
  struct Piece {
    size_t begin, end;  // in the text
    int32_t id;         // kUnknown: a character that is no piece
  };

  Unigram() = default;
  // `scores` by id.
  Unigram(std::vector<ByteTrie::Entry> pieces, std::vector<double> scores, Score unknown_score)
      : trie_(std::move(pieces)), scores_(std::move(scores)), unknown_score_(unknown_score) {}

  // Appends the pieces of `text`, any bytes.
  void Segment(std::string_view text, std::vector<Piece>* pieces) const;

 private:
  ByteTrie trie_;
  std::vector<double> scores_;
  Score unknown_score_ = 0;
};

extern template class Unigram<float>;
extern template class Unigram<double>;

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_UNIGRAM_H_
