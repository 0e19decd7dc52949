// SPDX-License-Identifier: Apache-2.0
#include "corpus/io/json_line.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/json_text.h"
#include "base/utf8.h"
#include "corpus/sixteen_bytes.h"
#include "nlohmann/json.hpp"

namespace tessera::corpus {
namespace {

// The first of `"`, `\` and the control characters from `at` on, or `end`.
const char* NextSpecial(const char* at, const char* end) {
  for (; end - at >= 16; at += 16) {
    const SixteenBytes bytes = LoadSixteen(at);
    const ByteMask control = bytes < uint8_t{0x20};
    const uint32_t found = BitsOf(control | (bytes == uint8_t{'"'}) | (bytes == uint8_t{'\\'}));
    if (found != 0) return at + std::countr_zero(found);
  }
  for (; at < end; ++at) {
    if (*at == '"' || *at == '\\' || static_cast<uint8_t>(*at) < 0x20) return at;
  }
  return end;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

int HexDigit(char c) {
  if (IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

class Scanner {
 public:
  explicit Scanner(std::string_view line) : at_(line.data()), end_(at_ + line.size()) {}

  const char* Object(std::vector<JsonPiece>* members) {
    members->clear();
    if (!Take('{')) return "no JSON object";
    if (!Take('}')) {
      do {
        JsonPiece member;
        if (!Take('"')) return "a member without a name";
        const char* const name = at_;
        if (const char* wrong = String()) return wrong;
        member.name = {name, static_cast<size_t>(at_ - 1 - name)};
        if (!Take(':')) return "a member without a value";
        SkipBlanks();
        const char* const value = at_;
        if (const char* wrong = Value(1)) return wrong;
        member.value = {value, static_cast<size_t>(at_ - value)};
        members->push_back(member);
      } while (Take(','));
      if (!Take('}')) return "an object that does not end";
    }
    SkipBlanks();
    return at_ == end_ ? nullptr : "text behind the object";
  }

 private:
  void SkipBlanks() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r' || *at_ == '\n')) ++at_;
  }
  bool Take(char expected) {
    SkipBlanks();
    if (at_ == end_ || *at_ != expected) return false;
    ++at_;
    return true;
  }
  // Behind the opening quote.
  const char* String() {
    for (;;) {
      at_ = NextSpecial(at_, end_);
      if (at_ == end_) return "a string that does not end";
      const char c = *at_++;
      if (c == '"') return nullptr;
      if (c != '\\') return "a control character in a string";
      if (at_ == end_) return "a string that does not end";
      const char escape = *at_++;
      if (escape == 'u') {
        if (end_ - at_ < 4) return "a string that does not end";
        for (int i = 0; i < 4; ++i) {
          if (HexDigit(*at_++) < 0) return "an unknown escape";
        }
      } else if (escape == '\0' || std::strchr("\"\\/bfnrt", escape) == nullptr) {
        return "an unknown escape";
      }
    }
  }
  bool Digits() {
    const char* const begin = at_;
    while (at_ < end_ && IsDigit(*at_)) ++at_;
    return at_ > begin;
  }
  const char* Number() {
    constexpr const char* kWrong = "no JSON value";
    if (*at_ == '-') ++at_;
    if (at_ < end_ && *at_ == '0') {
      ++at_;
    } else if (!Digits()) {
      return kWrong;
    }
    if (at_ < end_ && *at_ == '.') {
      ++at_;
      if (!Digits()) return kWrong;
    }
    if (at_ < end_ && (*at_ == 'e' || *at_ == 'E')) {
      ++at_;
      if (at_ < end_ && (*at_ == '+' || *at_ == '-')) ++at_;
      if (!Digits()) return kWrong;
    }
    return nullptr;
  }
  const char* Word(std::string_view word) {
    if (!std::string_view(at_, static_cast<size_t>(end_ - at_)).starts_with(word)) {
      return "no JSON value";
    }
    at_ += word.size();
    return nullptr;
  }
  const char* Value(int depth) {
    SkipBlanks();
    if (at_ == end_) return "a member without a value";
    switch (*at_) {
      case '"':
        ++at_;
        return String();
      case 't':
        return Word("true");
      case 'f':
        return Word("false");
      case 'n':
        return Word("null");
      case '[':
      case '{':
        break;
      default:
        return Number();
    }
    if (depth >= kMaxJsonDepth) return "nested too deeply";
    const bool object = *at_++ == '{';
    const char close = object ? '}' : ']';
    if (Take(close)) return nullptr;
    do {
      if (object) {
        if (!Take('"')) return "a member without a name";
        if (const char* wrong = String()) return wrong;
        if (!Take(':')) return "a member without a value";
      }
      if (const char* wrong = Value(depth + 1)) return wrong;
    } while (Take(','));
    return Take(close) ? nullptr : "an array or object that does not end";
  }

  const char* at_;
  const char* const end_;
};

char32_t Hex4(const char* at) {
  char32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value * 16 + static_cast<char32_t>(HexDigit(at[i]));
  return value;
}

}  // namespace

const char* ScanJsonObject(std::string_view line, std::vector<JsonPiece>* members) {
  return Scanner(line).Object(members);
}

void AppendJsonText(std::string_view quoted, std::string* text) {
  const char* at = quoted.data() + 1;
  const char* const end = quoted.data() + quoted.size() - 1;
  while (at < end) {
    const auto* escape =
        static_cast<const char*>(std::memchr(at, '\\', static_cast<size_t>(end - at)));
    if (escape == nullptr) escape = end;
    text->append(at, escape);
    if (escape == end) return;
    at = escape + 2;
    switch (escape[1]) {
      case 'b':
        *text += '\b';
        break;
      case 'f':
        *text += '\f';
        break;
      case 'n':
        *text += '\n';
        break;
      case 'r':
        *text += '\r';
        break;
      case 't':
        *text += '\t';
        break;
      case 'u': {
        char32_t c = Hex4(at);
        at += 4;
        if (c >= 0xD800 && c < 0xDC00 && end - at >= 6 && at[0] == '\\' && at[1] == 'u') {
          const char32_t low = Hex4(at + 2);
          if (low >= 0xDC00 && low < 0xE000) {
            c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
            at += 6;
          }
        }
        AppendUtf8(c >= 0xD800 && c < 0xE000 ? kReplacementCharacter : c, text);
        break;
      }
      default:
        *text += escape[1];
    }
  }
}

void AppendJsonString(std::string_view text, std::string* json) {
  json->reserve(json->size() + text.size() + 2);
  *json += '"';
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    const char* const special = NextSpecial(at, end);
    json->append(at, special);
    if (special == end) break;
    at = special + 1;
    switch (*special) {
      case '"':
        *json += "\\\"";
        break;
      case '\\':
        *json += "\\\\";
        break;
      case '\n':
        *json += "\\n";
        break;
      case '\r':
        *json += "\\r";
        break;
      case '\t':
        *json += "\\t";
        break;
      default: {
        constexpr char kHex[] = "0123456789abcdef";
        const auto c = static_cast<uint8_t>(*special);
        const char escape[] = {'\\', 'u', '0', '0', kHex[c >> 4], kHex[c & 15]};
        json->append(escape, sizeof(escape));
      }
    }
  }
  *json += '"';
}

}  // namespace tessera::corpus
