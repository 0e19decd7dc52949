// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/text_pattern.h"

#include "core/execution_context.h"
#include "core/regex.h"
#include "data/tokenizer/known_split.h"

namespace tessera::data {

TextPattern TextPattern::Literal(std::string literal) {
  return TextPattern([literal = std::move(literal)](std::string_view text, const auto& f) {
    for (size_t at = text.find(literal); at != std::string_view::npos;) {
      StopIfCancelled();
      f(at, at + literal.size());
      at = text.find(literal, at + literal.size());
    }
  });
}

StatusOr<TextPattern> TextPattern::Parse(const JsonPart& part) {
  const bool literal = part["Regex"].is_null();
  TESSERA_ASSIGN_OR_RETURN(std::string pattern, part.Text(literal ? "String" : "Regex", ""));
  if (pattern.empty()) return part.Wrong("neither a String nor a Regex");
  if (literal) return Literal(std::move(pattern));
  if (const KnownSplit find = FindKnownSplit(pattern)) return TextPattern(find);
  StatusOr<Regex> regex = Regex::Compile(pattern);
  if (!regex.ok()) return part.Wrong(Message(regex.status()));
  return TextPattern([regex = *std::move(regex)](std::string_view text, const auto& f) {
    regex.FindAll(text, f);
  });
}

}  // namespace tessera::data
