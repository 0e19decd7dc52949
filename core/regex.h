// SPDX-License-Identifier: Apache-2.0
// Regular expressions over UTF-8 (PCRE2, with Unicode's properties).
//
//   TESSERA_ASSIGN_OR_RETURN(Regex regex, Regex::Compile("\\p{N}+"));
//   regex.FindAll("a12b3", [](size_t begin, size_t end) { ... });   // 1..3, 4..5
//
// A search that exceeds PCRE2's limits throws Error with the pattern and the place in the text: a
// match that is not found is not the same as one that is not there. Immutable; safe from several
// threads.
#ifndef TESSERA_CORE_REGEX_H_
#define TESSERA_CORE_REGEX_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tessera {

class Regex {
 public:
  // InvalidArgument with PCRE2's reason and its place in the pattern.
  static StatusOr<Regex> Compile(std::string_view pattern);

  // Calls f for the successive matches that hold at least one byte. `text` is valid UTF-8.
  void FindAll(std::string_view text, const std::function<void(size_t, size_t)>& f) const;

 private:
  struct Code;
  // Whether there is a match from `from` on; where, is then in PCRE2's `match_data`.
  bool Search(std::string_view text, size_t from, void* match_data) const;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code> code_;
};

// `text` with regular expression characters taken literally.
std::string EscapedForRegex(std::string_view text);

}  // namespace tessera

#endif  // TESSERA_CORE_REGEX_H_
