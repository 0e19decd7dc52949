// SPDX-License-Identifier: Apache-2.0
// What SentencePiece does to a text before it is cut into pieces: characters are replaced by the
// model's map, blanks are written "▁", those at both ends and all but one of a run are left out,
// and one is put in front (or behind). Each as the model says.
//
//   const TextNormalizer normalizer(spec.normalizer, /*blank_is_suffix=*/false, &user_defined);
//   normalizer.Normalize(" Ａ  b", true);   // "▁A▁b" with a map to NFKC
//
// Bytes that are no UTF-8 become U+FFFD; user-defined pieces stay as they are. Immutable; safe from
// several threads.
#ifndef TESSERA_DATA_TOKENIZER_SENTENCE_PIECE_TEXT_NORMALIZER_H_
#define TESSERA_DATA_TOKENIZER_SENTENCE_PIECE_TEXT_NORMALIZER_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "data/tokenizer/byte_trie.h"
#include "data/tokenizer/precompiled_map.h"
#include "data/tokenizer/sentence_piece/model_message.h"

namespace tessera::data {

class TextNormalizer {
 public:
  // `spec` has a sound character map; `user_defined` (nullptr: none) outlives the normalizer.
  TextNormalizer(const SentencePieceSpec::Normalizer& spec, bool blank_is_suffix,
                 const ByteTrie* user_defined);

  // `dummy_prefix` false: no blank is put in front or behind.
  std::string Normalize(std::string_view text, bool dummy_prefix = true) const;

 private:
  // What the beginning of `text`, *length bytes, becomes.
  std::string_view Next(std::string_view text, size_t* length) const;

  PrecompiledMap map_;
  const ByteTrie* user_defined_;
  std::string_view blank_;  // how one is written
  bool add_dummy_prefix_;
  bool removes_blanks_;
  bool blank_is_suffix_;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_SENTENCE_PIECE_TEXT_NORMALIZER_H_
