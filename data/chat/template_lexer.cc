// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cctype>

#include "base/python_text.h"
#include "base/status.h"
#include "base/utf8.h"
#include "data/chat/template_syntax.h"

namespace tessera::data::chat {
namespace {

// Line ends are "\n", and one at the end of the template is none of its text.
std::string WithPlainLineEnds(std::string_view source) {
  std::string out;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool IsNameByte(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(WithPlainLineEnds(source)) {}

  std::vector<Token> Run() {
    while (at_ < text_.size()) ReadText();
    Add(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  void Add(Token::Kind kind, std::string text) {
    tokens_.push_back({.kind = kind, .text = std::move(text), .line = line_});
  }
  [[noreturn]] void Fail(std::string message) const {
    throw TemplateFailure{.message = std::move(message), .line = line_};
  }
  void AdvanceTo(size_t end) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<ptrdiff_t>(at_),
                                         text_.begin() + static_cast<ptrdiff_t>(end), '\n'));
    at_ = end;
  }
  bool StartsWith(std::string_view what) const {
    return std::string_view(text_).substr(at_).starts_with(what);
  }
  void SkipSpace() {
    size_t end = at_;
    while (end < text_.size()) {
      const Utf8Char c = DecodeUtf8(text_, end);
      if (!c.valid || !IsPythonSpace(c.code_point)) break;
      end += static_cast<size_t>(c.length);
    }
    AdvanceTo(end);
  }

  // Text up to the next tag, and the tag.
  void ReadText() {
    size_t tag = text_.size();
    for (size_t i = text_.find('{', at_); i != std::string::npos && i + 1 < text_.size();
         i = text_.find('{', i + 1)) {
      if (text_[i + 1] == '%' || text_[i + 1] == '{' || text_[i + 1] == '#') {
        tag = i;
        break;
      }
    }
    const bool starts_line = at_ == 0 || text_[at_ - 1] == '\n';
    std::string_view data = std::string_view(text_).substr(at_, tag - at_);
    if (tag == text_.size()) {
      if (!data.empty()) Add(Token::Kind::kText, std::string(data));
      AdvanceTo(tag);
      return;
    }
    const char kind = text_[tag + 1];
    const char sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
    if (sign == '-') {
      data = StripRight(data);
    } else if (sign != '+' && kind != '{') {
      const size_t line = data.rfind('\n') + 1;  // 0 where there is none
      if ((line > 0 || starts_line) && Strip(data.substr(line)).empty())
        data = data.substr(0, line);
    }
    if (!data.empty()) Add(Token::Kind::kText, std::string(data));
    AdvanceTo(tag + (sign == '-' || sign == '+' ? 3 : 2));
    if (kind == '#') {
      PassComment();
    } else if (kind == '{') {
      ReadTag(Token::Kind::kOutputBegin, Token::Kind::kOutputEnd, "}}");
    } else if (!ReadRaw()) {
      ReadTag(Token::Kind::kBlockBegin, Token::Kind::kBlockEnd, "%}");
    }
  }

  // What is behind a tag's end: `sign` is what stood before it.
  void PassEnd(size_t end, char sign, bool trims) {
    AdvanceTo(end);
    if (sign == '-') {
      SkipSpace();
    } else if (sign != '+' && trims && at_ < text_.size() && text_[at_] == '\n') {
      AdvanceTo(at_ + 1);
    }
  }
  static char SignBefore(std::string_view text, size_t end, size_t begin) {
    return end > begin && (text[end - 1] == '-' || text[end - 1] == '+') ? text[end - 1] : '\0';
  }

  void PassComment() {
    const size_t end = text_.find("#}", at_);
    if (end == std::string::npos) Fail("missing end of comment tag");
    PassEnd(end + 2, SignBefore(text_, end, at_), /*trims=*/true);
  }

  // {% raw %} ... {% endraw %}; false: it is another tag.
  bool ReadRaw() {
    const size_t begin = at_;
    const int line = line_;
    SkipSpace();
    if (!StartsWith("raw")) return Back(begin, line);
    AdvanceTo(at_ + 3);
    SkipSpace();
    const char sign = StartsWith("-%}") ? '-' : '\0';
    if (sign == '\0' && !StartsWith("%}")) return Back(begin, line);
    PassEnd(at_ + (sign == '-' ? 3 : 2), sign, /*trims=*/false);
    const size_t from = at_;
    for (size_t i = text_.find("{%", at_); i != std::string::npos; i = text_.find("{%", i + 1)) {
      const char before = i + 2 < text_.size() ? text_[i + 2] : '\0';
      size_t j = i + (before == '-' || before == '+' ? 3 : 2);
      while (j < text_.size() && IsPythonSpace(static_cast<unsigned char>(text_[j]))) ++j;
      if (text_.compare(j, 6, "endraw") != 0) continue;
      j += 6;
      while (j < text_.size() && IsPythonSpace(static_cast<unsigned char>(text_[j]))) ++j;
      const char after = j < text_.size() && (text_[j] == '-' || text_[j] == '+') ? text_[j] : '\0';
      if (after != '\0') ++j;
      if (text_.compare(j, 2, "%}") != 0) continue;
      std::string_view data = std::string_view(text_).substr(from, i - from);
      if (before == '-') {
        data = StripRight(data);
      } else if (before != '+') {
        const size_t at = data.rfind('\n') + 1;
        const bool starts_line = from == 0 || text_[from - 1] == '\n';
        if ((at > 0 || starts_line) && Strip(data.substr(at)).empty()) data = data.substr(0, at);
      }
      if (!data.empty()) Add(Token::Kind::kText, std::string(data));
      PassEnd(j + 2, after, /*trims=*/true);
      return true;
    }
    Fail("missing end of raw directive");
  }
  bool Back(size_t at, int line) {
    at_ = at;
    line_ = line;
    return false;
  }

  void ReadTag(Token::Kind begin, Token::Kind end, std::string_view closing) {
    Add(begin, "");
    std::string brackets;
    while (true) {
      SkipSpace();
      if (at_ >= text_.size()) Fail("unexpected end of template");
      if (brackets.empty()) {
        const bool block = end == Token::Kind::kBlockEnd;
        const bool has_sign = text_[at_] == '-' || (block && text_[at_] == '+');
        if (std::string_view(text_).substr(at_ + (has_sign ? 1 : 0)).starts_with(closing)) {
          Add(end, "");
          PassEnd(at_ + (has_sign ? 3 : 2), has_sign ? text_[at_] : '\0', block);
          return;
        }
      }
      ReadToken(&brackets);
    }
  }

  void ReadToken(std::string* brackets) {
    const char c = text_[at_];
    if (IsDigit(c)) return ReadNumber();
    if (IsNameByte(c)) {
      size_t end = at_;
      while (end < text_.size() && IsNameByte(text_[end])) ++end;
      Add(Token::Kind::kName, text_.substr(at_, end - at_));
      return AdvanceTo(end);
    }
    if (c == '"' || c == '\'') return ReadString(c);
    static constexpr std::array<std::string_view, 24> kOperators = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~",
        "[",  "]",  "(",  ")",  "{",  "}",  ">", "<", "=", ".", ":", "|"};
    std::string_view found = c == ',' ? "," : "";
    for (const std::string_view op : kOperators) {
      if (found.empty() && StartsWith(op)) found = op;
    }
    if (found.empty()) Fail(Concat("unexpected character ", Repr(Value::Of(CharacterAt(at_)))));
    if (const size_t opening = std::string_view("([{").find(c); opening != std::string::npos) {
      brackets->push_back(")]}"[opening]);
    } else if (c == ')' || c == ']' || c == '}') {
      if (brackets->empty() || brackets->back() != c) Fail(Concat("unexpected '", c, "'"));
      brackets->pop_back();
    }
    Add(Token::Kind::kOperator, std::string(found));
    AdvanceTo(at_ + found.size());
  }
  std::string CharacterAt(size_t at) const {
    return text_.substr(at, static_cast<size_t>(DecodeUtf8(text_, at).length));
  }

  // 12, 1_000, 1.5, 1e-3.
  void ReadNumber() {
    size_t end = at_;
    const auto digits = [&] {
      while (end < text_.size() &&
             (IsDigit(text_[end]) ||
              (text_[end] == '_' && end + 1 < text_.size() && IsDigit(text_[end + 1])))) {
        ++end;
      }
    };
    const auto digit_at = [&](size_t i) { return i < text_.size() && IsDigit(text_[i]); };
    digits();
    bool is_float = false;
    if (end < text_.size() && text_[end] == '.' && digit_at(end + 1)) {
      is_float = true;
      ++end;
      digits();
    }
    if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      const size_t sign =
          end + 1 < text_.size() && (text_[end + 1] == '-' || text_[end + 1] == '+') ? 2 : 1;
      if (digit_at(end + sign)) {
        is_float = true;
        end += sign;
        digits();
      }
    }
    std::string number = text_.substr(at_, end - at_);
    number.erase(std::remove(number.begin(), number.end(), '_'), number.end());
    Add(is_float ? Token::Kind::kFloat : Token::Kind::kInteger, std::move(number));
    AdvanceTo(end);
  }

  void ReadString(char quote) {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) Fail("a string does not end");
    Add(Token::Kind::kString, Unescaped(std::string_view(text_).substr(at_ + 1, end - at_ - 1)));
    AdvanceTo(end + 1);
  }
  // Python's escapes; one that is unknown stays as it is.
  std::string Unescaped(std::string_view raw) const {
    std::string out;
    for (size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '\\' || i + 1 == raw.size()) {
        out += raw[i];
        continue;
      }
      const char c = raw[++i];
      static constexpr std::string_view kPlain = "\\'\"abfnrtv";
      if (const size_t plain = kPlain.find(c); plain != std::string_view::npos) {
        out += "\\'\"\a\b\f\n\r\t\v"[plain];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        if (i + digits >= raw.size()) Fail("a truncated escape in a string");
        char32_t point = 0;
        for (size_t d = 1; d <= digits; ++d) {
          const int digit = HexDigit(raw[i + d]);
          if (digit < 0) Fail("a truncated escape in a string");
          point = point * 16 + static_cast<char32_t>(digit);
        }
        if (point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) {
          Fail("an escape in a string is no character");
        }
        AppendUtf8(point, &out);
        i += digits;
      } else if (c >= '0' && c <= '7') {
        char32_t point = 0;
        size_t d = 0;
        for (; d < 3 && i + d < raw.size() && raw[i + d] >= '0' && raw[i + d] <= '7'; ++d) {
          point = point * 8 + static_cast<char32_t>(raw[i + d] - '0');
        }
        AppendUtf8(point, &out);
        i += d - 1;
      } else if (c != '\n') {
        out += '\\';
        out += c;
      }
    }
    return out;
  }
  static int HexDigit(char c) {
    if (IsDigit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  }

  const std::string text_;
  size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> SplitTemplate(std::string_view source) { return Lexer(source).Run(); }

}  // namespace tessera::data::chat
