// SPDX-License-Identifier: Apache-2.0
// Unicode's normal forms (Unicode Standard Annex 15).
//
//   Normalize("é", NormalForm::kNfd);      // "e" + U+0301
//   Normalize("ﬁ①", NormalForm::kNfkc);    // "fi1"
//
// Text of any bytes: those that are not UTF-8 stay as they are and nothing composes across them.
// The tables are those of Hugging Face's tokenizers (make_normal_forms.py).
#ifndef TESSERA_BASE_NORMAL_FORMS_H_
#define TESSERA_BASE_NORMAL_FORMS_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

std::string Normalize(std::string_view text, NormalForm form);

// What a character decomposes to canonically, to the last; empty: it stays. Hangul syllables, which
// decompose by arithmetic, are not told of.
std::span<const char32_t> CanonicalDecomposition(char32_t c);
// Every character that has one, in no order.
void VisitDecomposing(const std::function<void(char32_t c)>& visit);

// Unicode's canonical combining class; 0 of characters that do not combine.
uint8_t CombiningClass(char32_t c);

// Whether c is a mark: of the categories Mn, Mc or Me.
bool IsMark(char32_t c);

}  // namespace tessera

#endif  // TESSERA_BASE_NORMAL_FORMS_H_
