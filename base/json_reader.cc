// SPDX-License-Identifier: Apache-2.0
#include "base/json_reader.h"

#include "base/utf8.h"

namespace tessera {

void JsonReader::SkipBlanks() {
  do {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
  } while (comments_ && SkipComment());
}

bool JsonReader::SkipComment() {
  const std::string_view rest(at_, static_cast<size_t>(end_ - at_));
  if (!rest.starts_with("//") && !rest.starts_with("/*")) return false;
  const std::string_view closing = rest[1] == '/' ? "\n" : "*/";
  const size_t end = rest.find(closing, 2);
  if (end == std::string_view::npos && rest[1] == '*') return false;
  at_ = end == std::string_view::npos ? end_ : at_ + end + closing.size();
  return true;
}

bool JsonReader::TakeWord(std::string_view word) {
  SkipBlanks();
  for (const char c : word) {
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
  }
  return true;
}

bool JsonReader::SkipDigits() {
  const char* const begin = at_;
  while (at_ < end_ && *at_ >= '0' && *at_ <= '9') ++at_;
  return at_ > begin;
}

std::string_view JsonReader::TakeNumber(bool* whole) {
  SkipBlanks();
  const char* const begin = at_;
  *whole = true;
  if (at_ < end_ && *at_ == '-') ++at_;
  if (at_ < end_ && *at_ == '0') {
    ++at_;
  } else if (!SkipDigits()) {
    return {};
  }
  if (at_ < end_ && *at_ == '.') {
    *whole = false;
    ++at_;
    if (!SkipDigits()) return {};
  }
  if (at_ < end_ && (*at_ == 'e' || *at_ == 'E')) {
    *whole = false;
    ++at_;
    if (at_ < end_ && (*at_ == '+' || *at_ == '-')) ++at_;
    if (!SkipDigits()) return {};
  }
  return {begin, static_cast<size_t>(at_ - begin)};
}

bool JsonReader::AtEnd() {
  SkipBlanks();
  return at_ == end_;
}

bool JsonReader::Take(char expected) {
  SkipBlanks();
  if (at_ == end_ || *at_ != expected) return false;
  ++at_;
  return true;
}

bool JsonReader::ReadNumber(int32_t* value) {
  SkipBlanks();
  int64_t number = 0;
  const char* const begin = at_;
  while (at_ < end_ && *at_ >= '0' && *at_ <= '9' && number <= INT32_MAX) {
    number = 10 * number + (*at_++ - '0');
  }
  const bool padded = at_ - begin > 1 && *begin == '0';
  if (at_ == begin || padded || number > INT32_MAX || at_ == end_) return false;
  *value = static_cast<int32_t>(number);
  return *at_ != '.' && *at_ != 'e' && *at_ != 'E';
}

bool JsonReader::ReadString(std::string* text) {
  if (!Take('"')) return false;
  while (true) {
    const char* const begin = at_;
    while (at_ < end_ && *at_ != '"' && *at_ != '\\' && static_cast<uint8_t>(*at_) >= 0x20) ++at_;
    text->append(begin, static_cast<size_t>(at_ - begin));
    if (at_ == end_) return false;
    const char c = *at_++;
    if (c == '"') return true;
    if (c != '\\') --at_;  // a control character
    if (c != '\\' || !ReadEscape(text)) return false;
  }
}

bool JsonReader::ReadEscape(std::string* text) {
  static constexpr std::string_view kLetters = "\"\\/bfnrt";
  static constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
  if (at_ == end_) return false;
  const char letter = *at_++;
  if (letter != 'u') {
    const size_t which = kLetters.find(letter);
    if (which == std::string_view::npos) --at_;
    if (which == std::string_view::npos) return false;
    text->push_back(kMeanings[which]);
    return true;
  }
  uint32_t code = 0;
  if (!ReadHex(&code)) return false;
  if (code >= 0xD800 && code < 0xE000) {  // half of a character
    uint32_t low = 0;
    if (code >= 0xDC00 || end_ - at_ < 2 || at_[0] != '\\' || at_[1] != 'u') return false;
    at_ += 2;
    if (!ReadHex(&low) || low < 0xDC00 || low >= 0xE000) return false;
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  AppendUtf8(static_cast<char32_t>(code), text);
  return true;
}

bool JsonReader::ReadHex(uint32_t* value) {
  if (end_ - at_ < 4) return false;
  for (int i = 0; i < 4; ++i) {
    const char c = *at_;
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return false;
    ++at_;
    *value = *value << 4 | static_cast<uint32_t>(digit);
  }
  return true;
}

char JsonReader::Next() {
  SkipBlanks();
  return at_ == end_ ? '\0' : *at_;
}

bool JsonReader::SkipValue() {
  SkipBlanks();
  int depth = 0;
  while (at_ < end_) {
    const char c = *at_;
    // The end of what this value is in.
    if (depth == 0 && (c == ',' || c == '}' || c == ']')) return true;
    ++at_;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (c != '"') continue;
    while (at_ < end_ && *at_ != '"') at_ += *at_ == '\\' && end_ - at_ > 1 ? 2 : 1;
    if (at_ >= end_) return false;
    ++at_;
  }
  return false;
}

}  // namespace tessera
