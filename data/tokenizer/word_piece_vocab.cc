// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/word_piece_vocab.h"

#include <algorithm>

#include "core/execution_context.h"

namespace tessera::data {
namespace {

bool BeginsCharacter(char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }

}  // namespace

void WordPieceVocab::Add(const std::string& piece, int32_t id) {
  all_[piece] = id;
  if (Continues(piece)) rest_[piece.substr(prefix_.size())] = id;
  longest_ = std::max(longest_, piece.size());
}

std::optional<int32_t> WordPieceVocab::Find(std::string_view piece) const {
  const auto at = all_.find(piece);
  return at == all_.end() ? std::nullopt : std::optional(at->second);
}

void WordPieceVocab::Encode(std::string_view word, std::vector<int32_t>* ids) const {
  StopIfCancelled();
  const size_t before = ids->size();
  if (std::count_if(word.begin(), word.end(), BeginsCharacter) <= most_characters_) {
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
      if (length == 0) break;
      ids->push_back(found->second);
      begin += length;
    }
    if (begin == word.size()) return;
  }
  ids->resize(before);
  ids->push_back(unk_id_);
}

}  // namespace tessera::data
