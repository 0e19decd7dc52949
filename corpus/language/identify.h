// SPDX-License-Identifier: Apache-2.0
// Which language a text is in: its script, and for Latin letters the language whose trigrams it is
// made of.
//
//   IdentifyLanguage("Zwei Männer stehen am Herd.")   // {"de", 1.0}
//
// Known are `en` and `de` by profiles of trigrams (make_profiles.py), `zh` (ideographs without
// kana), `ja`, `ko`, and by their scripts alone `ru` (Cyrillic), `el`, `ar`, `he`, `hi` and `th`.
// What has letters of none of these, or trigrams as neither English nor German has them, is `und`.
#ifndef TESSERA_CORPUS_LANGUAGE_IDENTIFY_H_
#define TESSERA_CORPUS_LANGUAGE_IDENTIFY_H_

#include <string>
#include <string_view>
#include <vector>

namespace tessera::corpus {

struct Language {
  std::string_view code;  // ISO 639-1; und: not known
  // How sure that is, 0 to 1: the share of the script's letters, and for Latin letters times the
  // probability of the language among those with profiles.
  double score = 0;
};

// `text` is UTF-8. Looks at its first 64 KiB.
Language IdentifyLanguage(std::string_view text);

// Every code that IdentifyLanguage can give.
std::vector<std::string> LanguageCodes();

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_LANGUAGE_IDENTIFY_H_
