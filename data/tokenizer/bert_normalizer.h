// SPDX-License-Identifier: Apache-2.0
// What BERT does with text before it looks up pieces: cleaning, lower case, accents, and cutting
// into words.
//
//   const BertNormalizer normalizer({.lowercase = true});
//   normalizer.Normalize("Ça va,\t世界?");          // "ca va,  世  界 ?"
//   normalizer.ForEachWord(text, [](std::string_view word) { ... });   // ca, va, ",", 世, 界, ?
//
// Control characters, U+FFFD and bytes that are not UTF-8 are removed; every kind of white space
// becomes a blank; ideographs get blanks around them; accents are taken off by canonical
// decomposition; words end at blanks, and each punctuation character is a word. The results are
// those of Hugging Face's BertTokenizerFast. Immutable; safe from several threads.
#ifndef TESSERA_DATA_TOKENIZER_BERT_NORMALIZER_H_
#define TESSERA_DATA_TOKENIZER_BERT_NORMALIZER_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::data {

struct BertNormalizerOptions {
  bool clean_text = true;  // false: control characters and kinds of white space stay
  bool lowercase = true;
  std::optional<bool> strip_accents = std::nullopt;  // as `lowercase` where not given
  bool tokenize_chinese_chars = true;
};

class BertNormalizer {
 public:
  explicit BertNormalizer(const BertNormalizerOptions& options) : options_(options) {}

  std::string Normalize(std::string_view text) const;
  // Calls f with every word of a normalised text; words point into it.
  static void ForEachWord(std::string_view normalized,
                          const std::function<void(std::string_view)>& f);

 private:
  void AppendNormalized(char32_t c, std::string* out) const;

  const BertNormalizerOptions options_;
};

// Appends the lower case of a character, which of U+0130 is two.
void AppendLower(char32_t c, std::string* out);

// A text in lower case, character by character; bytes that are not UTF-8 stay.
std::string LowerCased(std::string_view text);

// What BERT takes for punctuation: the symbols of ASCII and Unicode's categories P.
bool IsBertPunctuation(char32_t c);

// What BERT takes for an ideograph: Unicode's CJK ideographs, with their extensions.
bool IsBertIdeograph(char32_t c);

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_BERT_NORMALIZER_H_
