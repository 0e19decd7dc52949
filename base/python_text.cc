// SPDX-License-Identifier: Apache-2.0
#include "base/python_text.h"

#include <utility>

#include "base/utf8.h"

namespace tessera {

bool IsPythonSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

size_t LastCharacter(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) {
    --begin;
  }
  const Utf8Char c = DecodeUtf8(text.substr(0, end), begin);
  return c.valid && begin + static_cast<size_t>(c.length) == end ? begin : end - 1;
}

std::string_view StripLeft(std::string_view text) {
  while (!text.empty()) {
    const Utf8Char c = DecodeUtf8(text, 0);
    if (!c.valid || !IsPythonSpace(c.code_point)) break;
    text.remove_prefix(static_cast<size_t>(c.length));
  }
  return text;
}

std::string_view StripRight(std::string_view text) {
  while (!text.empty()) {
    const size_t last = LastCharacter(text, text.size());
    const Utf8Char c = DecodeUtf8(text, last);
    if (!c.valid || !IsPythonSpace(c.code_point)) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

std::string_view Strip(std::string_view text) { return StripRight(StripLeft(text)); }

std::string CollapsedSpaces(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool pending = false;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text, i);
    const auto length = static_cast<size_t>(c.length);
    if (c.valid && IsPythonSpace(c.code_point)) {
      pending = true;
    } else {
      if (pending && !out.empty()) out.push_back(' ');
      pending = false;
      out.append(text.substr(i, length));
    }
    i += length;
  }
  return out;
}

std::string ReplacedAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  while (true) {
    const size_t at = text.find(from);
    out.append(text.substr(0, at));
    if (at == std::string_view::npos) return out;
    out.append(to);
    text.remove_prefix(at + from.size());
  }
}

void CleanUpSpaces(std::string* text) {
  constexpr std::pair<std::string_view, std::string_view> kGlued[] = {
      {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
      {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kGlued) *text = ReplacedAll(*text, from, to);
}

}  // namespace tessera
