// SPDX-License-Identifier: Apache-2.0
// WordPiece's vocabulary and its greedy match (Schuster and Nakajima 2012; Devlin et al. 2018).
//
//   WordPieceVocab vocab("##", /*most_characters=*/100);
//   vocab.Add("un", 5); vocab.Add("##able", 6);
//   vocab.Encode("unable", &ids);               // 5, 6
//
// A word becomes the longest pieces from its front, those behind the first written with the prefix.
// A word of more characters than `most_characters` has no pieces.
#ifndef TESSERA_DATA_TOKENIZER_WORD_PIECE_VOCAB_H_
#define TESSERA_DATA_TOKENIZER_WORD_PIECE_VOCAB_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tessera::data {

class WordPieceVocab {
 public:
  explicit WordPieceVocab(std::string prefix = "##", int64_t most_characters = 100)
      : prefix_(std::move(prefix)), most_characters_(most_characters) {}

  // Valid UTF-8, as it is written in files.
  void Add(const std::string& piece, int32_t id);

  // Appends the ids of a word, valid UTF-8; false: it cannot be made of pieces.
  bool Encode(std::string_view word, std::vector<int32_t>* ids) const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  using Pieces = std::unordered_map<std::string, int32_t, Hash, std::equal_to<>>;

  std::string prefix_;
  int64_t most_characters_;
  Pieces all_;          // as they are written: what a word begins with
  Pieces rest_;         // those behind, without the prefix
  size_t longest_ = 0;  // bytes of the longest piece
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_WORD_PIECE_VOCAB_H_
