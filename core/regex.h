// SPDX-License-Identifier: Apache-2.0
// Regular expressions over UTF-8 (Oniguruma, with Unicode's properties).
//
//   TESSERA_ASSIGN_OR_RETURN(Regex regex, Regex::Compile("\\p{N}+"));
//   regex.FindAll("a12b3", [](size_t begin, size_t end) { ... });   // 1..3, 4..5
//
// Patterns mean what they mean in Hugging Face's tokenizers, which runs Oniguruma in its own
// syntax: \h is a hexadecimal digit, && intersects classes, ^ and $ are ends of lines, (?m) lets a
// dot match newlines. A search that exceeds the limits below throws Error with the pattern and the
// place in the text: a match that is not found is not the same as one that is not there. Immutable;
// safe from several threads.
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
  // How a pattern is written: as tokenizers takes it, or as Python's re does ((?P<name>...)).
  enum class Syntax { kOniguruma, kPython };

  // InvalidArgument with Oniguruma's reason.
  static StatusOr<Regex> Compile(std::string_view pattern, Syntax syntax = Syntax::kOniguruma);

  // Calls f for the successive matches, empty ones too, but for an empty match right behind another
  // match. `text` is valid UTF-8.
  void FindAll(std::string_view text, const std::function<void(size_t, size_t)>& f) const;

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code> code_;
};

}  // namespace tessera

#endif  // TESSERA_CORE_REGEX_H_
