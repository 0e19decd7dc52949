#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/tokenizer/regex.h"

#include <pcre2.h>

#include <utility>

namespace tessera::data {

struct Regex::Code {
  explicit Code(pcre2_code* compiled) : code(compiled) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  pcre2_code* code;
};

StatusOr<Regex> Regex::Compile(std::string_view pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  if (code == nullptr) {
    char reason[128] = {};
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(reason), sizeof(reason));
    return InvalidArgument("regular expression: ", reason, " at byte ", offset);
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // matching works without, too
  return Regex(std::make_shared<const Code>(code));
}

void Regex::FindAll(std::string_view text, const std::function<void(size_t, size_t)>& f) const {
  pcre2_match_data* found = pcre2_match_data_create(1, nullptr);
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(found);
  size_t from = 0;
  while (from < text.size()) {
    const int count = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()),
                                  text.size(), from, PCRE2_NO_UTF_CHECK, found, nullptr);
    if (count < 0 || range[0] < from || range[1] < range[0]) break;  // \K may move the begin
    if (range[1] > range[0]) {
      f(range[0], range[1]);
      from = range[1];
      continue;
    }
    // A match of nothing: on with the next character.
    from = range[1] + 1;
    while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) ++from;
  }
  pcre2_match_data_free(found);
}

std::string EscapedForRegex(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                       static_cast<unsigned char>(c) >= 0x80;
    if (!plain) out.push_back('\\');
    out.push_back(c);
  }
  return out;
}

}  // namespace tessera::data
