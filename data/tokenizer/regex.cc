#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/tokenizer/regex.h"

#include <pcre2.h>

#include <utility>

#include "core/error.h"

namespace tessera::data {

struct Regex::Code {
  Code(pcre2_code* compiled, std::string_view text) : code(compiled), pattern(text) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  pcre2_code* code;
  const std::string pattern;
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
  return Regex(std::make_shared<const Code>(code, pattern));
}

namespace {

using MatchData = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;

// Compiled patterns keep what they have yet to try on a small stack of their own; where that is
// exhausted, the interpreter, which keeps it on the heap, tries again.
constexpr uint32_t kInterpreterKib = 512 << 10;

int MatchInterpreted(const pcre2_code* code, std::string_view text, size_t from,
                     pcre2_match_data* found) {
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context(
      pcre2_match_context_create(nullptr), pcre2_match_context_free);
  pcre2_set_heap_limit(context.get(), kInterpreterKib);
  return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                     PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, found, context.get());
}

}  // namespace

bool Regex::Search(std::string_view text, size_t from, void* match_data) const {
  auto* const found = static_cast<pcre2_match_data*>(match_data);
  int count = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                          PCRE2_NO_UTF_CHECK, found, nullptr);
  if (count == PCRE2_ERROR_JIT_STACKLIMIT) count = MatchInterpreted(code_->code, text, from, found);
  if (count >= 0) return true;
  if (count == PCRE2_ERROR_NOMATCH) return false;
  char reason[128] = {};
  pcre2_get_error_message(count, reinterpret_cast<PCRE2_UCHAR*>(reason), sizeof(reason));
  throw Error("tokenizer", Concat("pattern '", code_->pattern, "' cannot be matched at byte ", from,
                                  " of a text: ", reason));
}

void Regex::FindAll(std::string_view text, const std::function<void(size_t, size_t)>& f) const {
  const MatchData found(pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(found.get());
  size_t from = 0;
  while (from < text.size() && Search(text, from, found.get())) {
    if (range[0] < from || range[1] < range[0]) break;  // \K may move the begin
    if (range[1] > range[0]) {
      f(range[0], range[1]);
      from = range[1];
      continue;
    }
    // A match of nothing: on with the next character.
    from = range[1] + 1;
    while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) ++from;
  }
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
