// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/word_piece_vocab.h"

#include <algorithm>

namespace tessera::data {
namespace {

bool BeginsCharacter(char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }

}  // namespace

void WordPieceVocab::Add(const std::string& piece, int32_t id) {
  all_[piece] = id;
  if (piece.starts_with(prefix_) && piece.size() > prefix_.size())
    rest_[piece.substr(prefix_.size())] = id;
  longest_ = std::max(longest_, piece.size());
}

bool WordPieceVocab::Encode(std::string_view word, std::vector<int32_t>* ids) const {
  if (std::count_if(word.begin(), word.end(), BeginsCharacter) > most_characters_) return false;
  size_t begin = 0;
  while (begin < word.size()) {
    const Pieces& pieces = begin == 0 ? all_ : rest_;
    size_t length = std::min(word.size() - begin, longest_);
    auto found = pieces.end();
    for (; length > 0; --length) {
      if (begin + length < word.size() && !BeginsCharacter(word[begin + length])) continue;
      found = pieces.find(word.substr(begin, length));
      if (found != pieces.end()) break;
    }
    if (length == 0) return false;
    ids->push_back(found->second);
    begin += length;
  }
  return true;
}

}  // namespace tessera::data
