// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"

#include <algorithm>
#include <cstring>

namespace tessera {
namespace {

// What the first byte of a character demands of the rest (Unicode standard, table 3-7).
struct Lead {
  int length;       // 0: no character begins with this byte
  uint8_t low;      // bounds of the second byte
  uint8_t high;     //
  uint8_t payload;  // mask of the first byte's own bits
};

Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0, 0x7F};
  if (byte < 0xC2) return {0, 0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF, 0x1F};
  if (byte == 0xE0) return {3, 0xA0, 0xBF, 0x0F};
  if (byte == 0xED) return {3, 0x80, 0x9F, 0x0F};
  if (byte < 0xF0) return {3, 0x80, 0xBF, 0x0F};
  if (byte == 0xF0) return {4, 0x90, 0xBF, 0x07};
  if (byte < 0xF4) return {4, 0x80, 0xBF, 0x07};
  if (byte == 0xF4) return {4, 0x80, 0x8F, 0x07};
  return {0, 0, 0, 0};
}

bool InBounds(const Lead& lead, int index, uint8_t byte) {
  if (index == 1) return byte >= lead.low && byte <= lead.high;
  return (byte & 0xC0) == 0x80;
}

// The bytes at text[i], at least one, that begin one character.
size_t BegunLength(std::string_view text, size_t i) {
  const Lead lead = LeadOf(static_cast<uint8_t>(text[i]));
  int length = 1;
  while (length < lead.length && i + static_cast<size_t>(length) < text.size() &&
         InBounds(lead, length, static_cast<uint8_t>(text[i + static_cast<size_t>(length)]))) {
    ++length;
  }
  return static_cast<size_t>(length);
}

}  // namespace

Utf8Char DecodeUtf8(std::string_view text, size_t i) {
  const auto first = static_cast<uint8_t>(text[i]);
  if (first < 0x80) return {first, 1, true};
  const Lead lead = LeadOf(first);
  const size_t left = text.size() - i;
  if (lead.length == 0 || left < static_cast<size_t>(lead.length)) return {first, 1, false};
  char32_t code_point = first & lead.payload;
  for (int k = 1; k < lead.length; ++k) {
    const auto byte = static_cast<uint8_t>(text[i + k]);
    if (!InBounds(lead, k, byte)) return {first, 1, false};
    code_point = (code_point << 6) | (byte & 0x3F);
  }
  return {code_point, lead.length, true};
}

size_t FindInvalidUtf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    if (text.size() - i >= 8) {
      uint64_t word;
      std::memcpy(&word, text.data() + i, sizeof(word));
      if ((word & 0x8080808080808080u) == 0) {
        i += 8;
        continue;
      }
    }
    const auto first = static_cast<uint8_t>(text[i]);
    const bool two = first >= 0xC2 && first < 0xE0 && i + 1 < text.size() &&
                     (static_cast<uint8_t>(text[i + 1]) & 0xC0) == 0x80;
    if (two) {
      i += 2;
      continue;
    }
    const Utf8Char c = DecodeUtf8(text, i);
    if (!c.valid) return i;
    i += c.length;
  }
  return kNoInvalidUtf8;
}

size_t IncompleteUtf8Suffix(std::string_view text) {
  const size_t longest = std::min<size_t>(3, text.size());
  for (size_t n = 1; n <= longest; ++n) {
    const size_t begin = text.size() - n;
    const auto first = static_cast<uint8_t>(text[begin]);
    if ((first & 0xC0) == 0x80) continue;
    const Lead lead = LeadOf(first);
    if (lead.length <= static_cast<int>(n)) return 0;
    for (size_t k = 1; k < n; ++k) {
      if (!InBounds(lead, static_cast<int>(k), static_cast<uint8_t>(text[begin + k]))) return 0;
    }
    return n;
  }
  return 0;
}

void AppendUtf8(char32_t code_point, std::string* out) {
  const auto put = [out](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3F));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

namespace {
std::string Replaced(std::string_view text, bool each_byte) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text, i);
    const size_t length =
        c.valid || each_byte ? static_cast<size_t>(c.length) : BegunLength(text, i);
    if (c.valid) {
      out.append(text.substr(i, length));
    } else {
      AppendUtf8(kReplacementCharacter, &out);
    }
    i += length;
  }
  return out;
}

}  // namespace

std::string ReplaceInvalidUtf8(std::string_view text) { return Replaced(text, false); }

std::string ReplaceInvalidBytes(std::string_view text) { return Replaced(text, true); }

}  // namespace tessera
