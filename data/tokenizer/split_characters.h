// SPDX-License-Identifier: Apache-2.0
// What splitting into words asks of characters beside their class (base/unicode_classes.h).
//
//   SplitCharacters::Get().IsUpper(U'Ä');
//
// Immutable; safe from several threads. Unicode 16.0, as in Hugging Face's tokenizers.
#ifndef TESSERA_DATA_TOKENIZER_SPLIT_CHARACTERS_H_
#define TESSERA_DATA_TOKENIZER_SPLIT_CHARACTERS_H_

#include <cstdint>
#include <vector>

namespace tessera::data {

class SplitCharacters {
 public:
  // The one table of the process, built at the first call; safe from any thread.
  static const SplitCharacters& Get();

  // \p{Lu} or \p{Lt}.
  bool IsUpper(char32_t c) const { return Has(c, kIsUpper); }
  // \p{Ll}.
  bool IsLower(char32_t c) const { return Has(c, kIsLower); }
  // \p{M}.
  bool IsMark(char32_t c) const { return Has(c, kIsMark); }
  // \p{P} or \p{S}.
  bool IsSign(char32_t c) const { return Has(c, kIsSign); }
  // \w of Rust's regular expressions.
  bool IsWord(char32_t c) const;

 private:
  enum Property : uint8_t { kIsUpper = 1, kIsLower = 2, kIsMark = 4, kIsSign = 8, kIsWord = 16 };
  SplitCharacters();
  bool Has(char32_t c, Property property) const { return c < of_.size() && of_[c] & property; }

  std::vector<uint8_t> of_;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_SPLIT_CHARACTERS_H_
