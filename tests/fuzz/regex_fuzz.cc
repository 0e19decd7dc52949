// SPDX-License-Identifier: Apache-2.0
// Patterns of tokenizers (core/regex.h). The input is a pattern and, behind kFileEnd, the
// text to search.
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "core/regex.h"
#include "tests/fuzz/fuzz_target.h"

namespace tessera::fuzz {
namespace {

bool Run(std::string_view bytes) {
  const size_t end = bytes.find(kFileEnd);
  const auto regex = Regex::Compile(bytes.substr(0, end));
  if (!regex.ok()) return false;
  std::string text = "Hello  world, don't 12 深度 e\u0301\n\tx aaaaaaaaaaaaaaaaaaaaaaaa";
  if (end != std::string_view::npos) {
    text = ReplaceInvalidUtf8(bytes.substr(end + kFileEnd.size()));
  }
  size_t found = 0;
  try {
    regex->FindAll(text, [&](size_t from, size_t to) { found += to - from; });
  } catch (const Error&) {
    // It exceeds the limits of core/regex.h.
  }
  return true;
}

std::vector<std::string> Seeds() {
  return {
      "(?i:'s|'t|'re)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
      "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s+(?!\\S)",
      "\\X",
      Joined({"(?<= ) +", "a  b"}),
      Joined({"(?:(a)|(b))+", std::string(900, 'a')}),
      Joined({"(a+)+$", std::string(40, 'a') + "b"}),
      "[\\p{L}&&[^\\p{Han}]]+|(?~ab)|\\h{2}|[[:punct:]]"};
}

const FuzzTargetRegistration registration(
    {.name = "regex",
     .run = Run,
     .seeds = Seeds,
     .words = {std::string(kFileEnd), "\\p{L}", "\\p{N}", "(?i:", "(?<=", "(?!", "\\K", "\\X",
               "\\g<0>", "{1,3}", "(*", "\\x{", "&&", "(?~", "[[:punct:]]", "(?(1)", "\\k<1>"}});

}  // namespace
}  // namespace tessera::fuzz
