// SPDX-License-Identifier: Apache-2.0
#include "corpus/repair/repair.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "base/utf8.h"
#include "corpus/repair/windows_1252.h"
#include "corpus/sixteen_bytes.h"

namespace tessera::corpus {
namespace {

struct Entity {
  std::string_view name;
  char32_t character;
};

constexpr Entity kEntities[] = {
#include "corpus/repair/entities.inc"
};

// 0x80 to 0x9F as pages mean them.
char32_t Meant(char32_t c) { return c >= 0x80 && c < 0xA0 ? kWindows1252[c - 0x80] : c; }

// Whether every byte is a printable one of ASCII but "&", a line feed or a tab.
bool IsPlain(std::string_view text) {
  size_t i = 0;
  for (; text.size() - i >= 16; i += 16) {
    const SixteenBytes bytes = LoadSixteen(text.data() + i);
    const ByteMask printable = Between(bytes, ' ', '~') & (bytes != uint8_t{'&'});
    const ByteMask blank = (bytes == uint8_t{'\n'}) | (bytes == uint8_t{'\t'});
    if (BitsOf(printable | blank) != 0xFFFF) return false;
  }
  return std::all_of(text.begin() + static_cast<std::ptrdiff_t>(i), text.end(), [](char c) {
    return c == '\n' || c == '\t' || (c >= ' ' && c < 0x7F && c != '&');
  });
}

// The character that an entity between "&" and ";" is; 0: it is none.
char32_t EntityOf(std::string_view name) {
  if (name.starts_with('#')) {
    name.remove_prefix(1);
    const bool hex = name.starts_with('x') || name.starts_with('X');
    if (hex) name.remove_prefix(1);
    if (name.empty() || name.size() > 7) return 0;
    char32_t value = 0;
    for (const char c : name) {
      const bool digit = c >= '0' && c <= '9';
      const auto lower = static_cast<char>(c | 0x20);
      if (!digit && (!hex || lower < 'a' || lower > 'f')) return 0;
      value = value * (hex ? 16 : 10) + static_cast<char32_t>(digit ? c - '0' : lower - 'a' + 10);
    }
    if (value == 0 || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return 0;
    return Meant(value);
  }
  if (name == "apos") return '\'';
  const auto found = std::ranges::lower_bound(kEntities, name, {}, &Entity::name);
  return found != std::end(kEntities) && found->name == name ? found->character : 0;
}

bool IsIdeographOrKana(char32_t c) {
  return (c >= 0x3040 && c < 0x3100) || (c >= 0x3400 && c < 0xA000) ||
         (c >= 0xF900 && c < 0xFB00) || (c >= 0x20000 && c < 0x32000);
}

bool HasIdeographsOrKana(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    if (static_cast<uint8_t>(text[i]) < 0xE3) {
      ++i;
      continue;
    }
    const Utf8Char c = DecodeUtf8(text, i);
    if (IsIdeographOrKana(c.code_point)) return true;
    i += static_cast<size_t>(c.length);
  }
  return false;
}

// What no text has: controls, deprecated and internal marks, tags.
bool IsJunk(char32_t c) {
  if (c < 0x20) return c != '\t' && c != '\n' && c != '\f' && c != '\r';
  return c == 0x7F || (c >= 0x206A && c <= 0x206F) || c == 0xFEFF || (c >= 0xFFF9 && c <= 0xFFFC) ||
         (c >= 0xE0000 && c <= 0xE007F);
}

bool IsWidth(char32_t c, bool with_punctuation) {
  if (c == 0x3000) return with_punctuation;
  if (c < 0xFF01 || c > 0xFFEE) return false;
  const bool ascii = c <= 0xFF5E;
  const auto plain = static_cast<char>(c - 0xFEE0);
  const bool alphanumeric =
      ascii && ((plain >= '0' && plain <= '9') || (plain >= 'A' && plain <= 'Z') ||
                (plain >= 'a' && plain <= 'z'));
  const bool katakana = c >= 0xFF66 && c <= 0xFF9F;
  return with_punctuation || alphanumeric || katakana;
}

bool IsLigature(char32_t c) {
  return (c >= 0xFB00 && c <= 0xFB06) || c == 0x132 || c == 0x133 || c == 0x149 ||
         (c >= 0x1C4 && c <= 0x1CC) || (c >= 0x1F1 && c <= 0x1F3);
}

// The length of "\x1b[...m" at the text's begin, 0 where it is none.
size_t EscapeLength(std::string_view text) {
  if (!text.starts_with("\x1B[")) return 0;
  const size_t end = text.find_first_not_of("0123456789;", 2);
  return end != std::string_view::npos && text[end] == 'm' ? end + 1 : 0;
}

}  // namespace

bool Unescape(std::string_view text, std::string* out) {
  out->clear();
  if (text.find('&') == std::string_view::npos || text.find('<') != std::string_view::npos) {
    return false;
  }
  bool changed = false;
  size_t begin = 0;
  for (size_t at = text.find('&'); at != std::string_view::npos; at = text.find('&', at + 1)) {
    const size_t end = text.substr(at, 12).find(';');
    const char32_t c = end == std::string_view::npos ? 0 : EntityOf(text.substr(at + 1, end - 1));
    if (c == 0) continue;
    out->append(text.substr(begin, at - begin));
    AppendUtf8(c, out);
    begin = at + end + 1;
    changed = true;
  }
  if (changed) out->append(text.substr(begin));
  return changed;
}

bool FixCharacters(std::string_view text, std::string* out) {
  out->clear();
  const bool wide_punctuation = !HasIdeographsOrKana(text);
  size_t begin = 0;  // of what is copied as it is
  bool changed = false;
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte >= ' ' && byte < 0x7F) {
      ++i;
      continue;
    }
    const Utf8Char c = DecodeUtf8(text, i);
    const char32_t point = c.code_point;
    size_t length = static_cast<size_t>(c.length);
    std::string instead;
    if (byte == '\r' || point == 0x2028 || point == 0x2029) {
      if (byte == '\r' && i + 1 < text.size() && text[i + 1] == '\n') ++length;
      instead = "\n";
    } else if (const size_t escape = EscapeLength(text.substr(i)); escape > 0) {
      length = escape;
    } else if (point >= 0x80 && point < 0xA0) {
      AppendUtf8(Meant(point), &instead);
    } else if (IsWidth(point, wide_punctuation) || IsLigature(point)) {
      instead = Normalize(text.substr(i, length), NormalForm::kNfkc);
    } else if (!IsJunk(point)) {
      i += length;
      continue;
    }
    out->append(text.substr(begin, i - begin));
    *out += instead;
    i += length;
    begin = i;
    changed = true;
  }
  if (changed) out->append(text.substr(begin));
  return changed;
}

std::string RepairText(std::string_view text, const RepairOptions& options) {
  if (IsPlain(text)) return std::string(text);
  std::string current(text), next;
  if (Unescape(current, &next)) std::swap(current, next);
  if (FixMojibake(current, &next)) std::swap(current, next);
  if (FixCharacters(current, &next)) std::swap(current, next);
  return options.form ? Normalize(current, *options.form) : current;
}

}  // namespace tessera::corpus
