// SPDX-License-Identifier: Apache-2.0
// Broken Unicode, mended: what ftfy (Robyn Speer) is known for, in the same order.
//
//   RepairText("The Mona Lisa doesnâ€™t have eyebrows.", {});   // doesn’t
//   RepairText("l&apos;&eacute;t&eacute;", {});                 // l'été
//
// - Entities of HTML become characters, in texts without a "<".
// - UTF-8 that was read as windows-1252 or latin-1 is read again, also where that happened several
//   times. Each stretch of a text is judged by itself: what could be meant (a word in quotes that
//   ends in é”) stays.
// - Characters U+0080 to U+009F are what windows-1252 has there.
// - Ligatures become letters; wide letters, digits and blanks and narrow katakana become usual
//   ones. Wide punctuation does too, but not in texts that have ideographs or kana.
// - Line ends become line feeds. Controls, escape sequences of terminals, byte-order marks and what
//   else no text has go.
// - The normal form is NFC, or the one asked for.
#ifndef TESSERA_CORPUS_REPAIR_REPAIR_H_
#define TESSERA_CORPUS_REPAIR_REPAIR_H_

#include <optional>
#include <string>
#include <string_view>

#include "base/normal_forms.h"

namespace tessera::corpus {

struct RepairOptions {
  std::optional<NormalForm> form = NormalForm::kNfc;
};

// `text` is UTF-8, and so is what is returned.
std::string RepairText(std::string_view text, const RepairOptions& options);

// Its parts, each a whole pass; *out is replaced. False: nothing was to be done, *out is empty.
bool Unescape(std::string_view text, std::string* out);
bool FixMojibake(std::string_view text, std::string* out);
bool FixCharacters(std::string_view text, std::string* out);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_REPAIR_REPAIR_H_
