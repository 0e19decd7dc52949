// SPDX-License-Identifier: Apache-2.0
// The four classes of characters that GPT-2's splitting pattern tells apart.
//
//   const UnicodeClasses& classes = UnicodeClasses::Get();
//   classes.Of(U'é') == CharClass::kLetter;
//
// Letter is \p{L}, number \p{N}, space \s with the White_Space property (so U+0085 and U+2028 are
// spaces, U+001C and U+180E are not). Unicode 16.0, as in Hugging Face's tokenizers; later versions
// differ only in code points that were unassigned.
#ifndef TESSERA_BASE_UNICODE_CLASSES_H_
#define TESSERA_BASE_UNICODE_CLASSES_H_

#include <cstdint>
#include <vector>

namespace tessera {

enum class CharClass : uint8_t { kOther = 0, kLetter = 1, kNumber = 2, kSpace = 3 };

class UnicodeClasses {
 public:
  // The one table of the process, built at the first call; safe from any thread.
  static const UnicodeClasses& Get();

  // Of any value; beyond U+10FFFF: kOther.
  CharClass Of(char32_t code_point) const {
    if (code_point > 0x10FFFF) return CharClass::kOther;
    return static_cast<CharClass>((packed_[code_point >> 2] >> ((code_point & 3) * 2)) & 3);
  }

 private:
  UnicodeClasses();

  std::vector<uint8_t> packed_;  // four code points a byte
};

inline bool IsUnicodeSpace(char32_t c) { return UnicodeClasses::Get().Of(c) == CharClass::kSpace; }

}  // namespace tessera

#endif  // TESSERA_BASE_UNICODE_CLASSES_H_
