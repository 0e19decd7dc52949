// SPDX-License-Identifier: Apache-2.0
#define PCRE2_CODE_UNIT_WIDTH 8
#include "core/regex.h"

#include <pcre2.h>

#include <new>
#include <utility>

#include "base/error.h"
#include "core/execution_context.h"

namespace tessera {

struct Regex::Code {
  explicit Code(std::string_view text) : pattern(text) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  pcre2_code* code = nullptr;
  const std::string pattern;
};

namespace {

// PCRE2 takes its memory from where everything else does. It reports that there is none as a null
// pointer or an error code, which becomes the exception of operator new.
void* Obtain(size_t size, void*) { return ::operator new(size, std::nothrow); }
void GiveBack(void* memory, void*) { ::operator delete(memory); }

template <typename T>
T* Obtained(T* made) {
  if (made == nullptr) throw std::bad_alloc();
  return made;
}

// Never destroyed: texts may be cut while static objects go.
pcre2_general_context* Memory() {
  static auto* const context = Obtained(pcre2_general_context_create(Obtain, GiveBack, nullptr));
  return context;
}

struct Release {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_match_data* found) const { pcre2_match_data_free(found); }
};
using CompileContext = std::unique_ptr<pcre2_compile_context, Release>;
using MatchContext = std::unique_ptr<pcre2_match_context, Release>;
using MatchData = std::unique_ptr<pcre2_match_data, Release>;

}  // namespace

StatusOr<Regex> Regex::Compile(std::string_view pattern) {
  const CompileContext context(Obtained(pcre2_compile_context_create(Memory())));
  auto compiled = std::make_shared<Code>(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  compiled->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                 PCRE2_UTF | PCRE2_UCP, &error, &offset, context.get());
  if (compiled->code == nullptr) {
    if (error == PCRE2_ERROR_HEAP_FAILED) throw std::bad_alloc();
    char reason[128] = {};
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(reason), sizeof(reason));
    return InvalidArgument("regular expression: ", reason, " at byte ", offset);
  }
  pcre2_jit_compile(compiled->code, PCRE2_JIT_COMPLETE);  // matching works without, too
  return Regex(std::move(compiled));
}

namespace {

// Compiled patterns keep what they have yet to try on a small stack of their own; where that is
// exhausted, the interpreter, which keeps it on the heap, tries again.
constexpr uint32_t kInterpreterKib = 512 << 10;

int MatchInterpreted(const pcre2_code* code, std::string_view text, size_t from,
                     pcre2_match_data* found) {
  const MatchContext context(Obtained(pcre2_match_context_create(Memory())));
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
  if (count == PCRE2_ERROR_NOMEMORY) throw std::bad_alloc();
  char reason[128] = {};
  pcre2_get_error_message(count, reinterpret_cast<PCRE2_UCHAR*>(reason), sizeof(reason));
  throw Error("tokenizer", Concat("pattern '", code_->pattern, "' cannot be matched at byte ", from,
                                  " of a text: ", reason));
}

void Regex::FindAll(std::string_view text, const std::function<void(size_t, size_t)>& f) const {
  const MatchData found(Obtained(pcre2_match_data_create(1, Memory())));
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(found.get());
  size_t from = 0;
  while (from < text.size() && Search(text, from, found.get())) {
    StopIfCancelled();
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

}  // namespace tessera
