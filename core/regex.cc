// SPDX-License-Identifier: Apache-2.0
#include "core/regex.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "core/execution_context.h"
#include "oniguruma.h"
#include "third_party/oniguruma/memory.h"

namespace tessera {

struct Regex::Code {
  explicit Code(std::string_view text) : pattern(text) {}
  ~Code() { onig_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  regex_t* code = nullptr;
  const std::string pattern;
};

namespace {

// How often a match may step back and try again: from one place of a text, which is the library's
// own limit and that of tokenizers, and in one search of many places. That takes about a second.
constexpr unsigned long kMostRetriesInMatch = 10'000'000;
constexpr unsigned long kMostRetriesInSearch = 100'000'000;
// Places to return to, of some 40 bytes each.
constexpr unsigned int kMostStackEntries = 4'000'000;

const OnigUChar* BytesOf(std::string_view text) {
  // Also an empty text has an address.
  return reinterpret_cast<const OnigUChar*>(text.data() == nullptr ? "" : text.data());
}

void IgnoreWarning(const char*) {}

// Of the process, before the first pattern. Where memory is lacking, the next pattern tries again.
bool InitializeLibrary() {
  onig_set_warn_func(IgnoreWarning);
  onig_set_verb_warn_func(IgnoreWarning);
  OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
  try {
    if (onig_initialize(encodings, 1) == ONIG_NORMAL) return true;
    throw std::bad_alloc();
  } catch (const std::bad_alloc&) {
    onig_end();
    throw;
  }
}

std::string ReasonOf(int code, OnigErrorInfo* info = nullptr) {
  OnigUChar reason[ONIG_MAX_ERROR_MESSAGE_LEN] = {};
  const int length = info == nullptr ? onig_error_code_to_str(reason, code)
                                     : onig_error_code_to_str(reason, code, info);
  return {reinterpret_cast<const char*>(reason), static_cast<size_t>(length)};
}

struct Release {
  void operator()(OnigRegion* region) const { onig_region_free(region, /*free_self=*/1); }
  void operator()(OnigMatchParam* param) const { onig_free_match_param(param); }
};

// What one thread searches with.
struct Search {
  Search() : region(onig_region_new()), param(onig_new_match_param()) {
    onig_set_retry_limit_in_match_of_match_param(param.get(), kMostRetriesInMatch);
    onig_set_retry_limit_in_search_of_match_param(param.get(), kMostRetriesInSearch);
    onig_set_match_stack_limit_size_of_match_param(param.get(), kMostStackEntries);
  }
  std::unique_ptr<OnigRegion, Release> region;
  std::unique_ptr<OnigMatchParam, Release> param;
};

}  // namespace

StatusOr<Regex> Regex::Compile(std::string_view pattern, Syntax syntax) {
  if (const size_t at = FindInvalidUtf8(pattern); at != kNoInvalidUtf8) {
    return InvalidArgument("regular expression: not UTF-8 at byte ", at);
  }
  [[maybe_unused]] static const bool initialized = InitializeLibrary();
  auto compiled = std::make_shared<Code>(pattern);
  const OnigUChar* const begin = BytesOf(pattern);
  OnigErrorInfo info = {};
  OnigurumaMemoryScope scope;
  regex_t* made = nullptr;
  const int code =
      onig_new(&made, begin, begin + pattern.size(), ONIG_OPTION_NONE, ONIG_ENCODING_UTF8,
               syntax == Syntax::kPython ? ONIG_SYNTAX_PYTHON : ONIG_SYNTAX_ONIGURUMA, &info);
  if (code == ONIGERR_MEMORY) throw std::bad_alloc();
  if (code != ONIG_NORMAL) return InvalidArgument("regular expression: ", ReasonOf(code, &info));
  compiled->code = made;
  scope.Keep();
  return Regex(std::move(compiled));
}

void Regex::FindAll(std::string_view text, const std::function<void(size_t, size_t)>& f) const {
  const OnigurumaMemoryScope scope;
  const Search search;
  const OnigUChar* const begin = BytesOf(text);
  const OnigUChar* const end = begin + text.size();
  size_t from = 0;
  size_t last_end = std::string_view::npos;
  while (from <= text.size()) {
    StopIfCancelled();
    const int at =
        onig_search_with_param(code_->code, begin, end, begin + from, end, search.region.get(),
                               ONIG_OPTION_NONE, search.param.get());
    if (at == ONIG_MISMATCH) return;
    if (at == ONIGERR_MEMORY) throw std::bad_alloc();
    if (at < 0) {
      throw Error("tokenizer", Concat("pattern '", code_->pattern, "' cannot be matched at byte ",
                                      from, " of a text: ", ReasonOf(at)));
    }
    const auto first = static_cast<size_t>(search.region->beg[0]);
    const auto behind = static_cast<size_t>(search.region->end[0]);
    if (first != behind || behind != last_end) {
      f(first, behind);
      from = last_end = behind;
      continue;
    }
    // On with the next character.
    ++from;
    while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) ++from;
  }
}

}  // namespace tessera
