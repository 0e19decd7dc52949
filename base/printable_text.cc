// SPDX-License-Identifier: Apache-2.0
#include "base/printable_text.h"

#include "base/status.h"
#include "base/utf8.h"

namespace tessera {
namespace {

std::string Escaped(std::string_view text, std::string_view kept) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text, at);
    const bool control = (c.code_point < 0x20 && kept.find(text[at]) == kept.npos) ||
                         (c.code_point >= 0x7F && c.code_point < 0xA0);
    for (const char byte : text.substr(at, static_cast<size_t>(c.length))) {
      if (c.valid && !control) {
        out += byte;
      } else {
        out += {'\\', 'x', kDigits[(byte >> 4) & 15], kDigits[byte & 15]};
      }
    }
    at += static_cast<size_t>(c.length);
  }
  return out;
}

// The nearest place at or before `at` where a character begins.
size_t Border(std::string_view text, size_t at) {
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

}  // namespace

std::string PrintableText(std::string_view text) { return Escaped(text, "\n\t"); }

std::string PrintableLine(std::string_view text, size_t most) {
  std::string line = Escaped(text, "\t");
  if (line.size() <= most) return line;
  const size_t head = Border(line, most / 2);
  const size_t tail = Border(line, line.size() - most / 2);
  return Concat(line.substr(0, head), " ... (", tail - head, " bytes) ... ", line.substr(tail));
}

}  // namespace tessera
