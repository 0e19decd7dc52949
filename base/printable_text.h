// SPDX-License-Identifier: Apache-2.0
// Text from outside (names in files, messages that quote them) as a terminal may be shown it.
//
//   PrintableText("h.\x1b[2J.weight")              // "h.\\x1b[2J.weight"
//
// Control characters but for line feeds and tabs, and bytes that are no UTF-8, become \xNN, so that
// no name moves the cursor or ends a line's text early. Everything else stays as it is.
#ifndef TESSERA_BASE_PRINTABLE_TEXT_H_
#define TESSERA_BASE_PRINTABLE_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

std::string PrintableText(std::string_view text);

// On one line: line feeds, too, are \xNN, and of more than `most` bytes the middle is left out and
// counted.
std::string PrintableLine(std::string_view text, size_t most);

}  // namespace tessera

#endif  // TESSERA_BASE_PRINTABLE_TEXT_H_
