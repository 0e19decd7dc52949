// SPDX-License-Identifier: Apache-2.0
// The pieces of a BPE model: characters, the pair of neighbours that makes the best piece merged
// until none makes one.
//
// The merges are those that bpe_merges.h applies, of symbols: the model's pieces, by their ids, and
// characters that are none but stand in pieces.
#ifndef TESSERA_DATA_TOKENIZER_SENTENCE_PIECE_MERGE_SEGMENTER_H_
#define TESSERA_DATA_TOKENIZER_SENTENCE_PIECE_MERGE_SEGMENTER_H_

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tokenizer/bpe_merges.h"
#include "data/tokenizer/sentence_piece/segmenter.h"
#include "data/tokenizer/word_cache.h"

namespace tessera::data {

class MergeSegmenter : public Segmenter {
 public:
  MergeSegmenter(const SentencePieceSpec& spec, const PieceIndex* index,
                 const ByteTrie* user_defined);

  void Encode(std::string_view text, std::vector<int32_t>* ids) const override;

 private:
  void AddMerges(const SentencePieceSpec& spec);
  // The symbol that merges know a text by; < 0: none, as of user-defined pieces, which stay alone.
  int32_t FindSymbol(std::string_view text) const;
  // The same; a character gets one.
  int32_t SymbolOf(std::string_view text);

  // The end of the part at text[begin] that no merge crosses.
  size_t PartEnd(std::string_view text, size_t begin) const;
  void EncodePart(std::string_view part, std::vector<int32_t>* ids) const;
  // How much of `text` a symbol that it begins with is.
  size_t LengthOf(int32_t symbol, std::string_view text) const;
  // Appends the id of a symbol, `text`. An unused piece is taken apart into what it was made of.
  void AppendSymbol(int32_t symbol, std::string_view text, const BpeMerges::Parts& parts,
                    std::vector<int32_t>* ids) const;

  const std::vector<SentencePieceSpec::Piece>& pieces_;
  const ByteTrie* user_defined_;
  // Of characters in pieces that are no pieces themselves: behind the ids of the pieces.
  std::unordered_map<std::string_view, int32_t> characters_;
  BpeMerges merges_;
  bool makes_unused_ = false;
  bool ends_at_blanks_ = true;  // parts do
  mutable WordCachePool caches_;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_SENTENCE_PIECE_MERGE_SEGMENTER_H_
