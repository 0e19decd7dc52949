// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/sentence_piece/text_normalizer.h"

#include "base/utf8.h"

namespace tessera::data {

TextNormalizer::TextNormalizer(const SentencePieceSpec::Normalizer& spec, bool blank_is_suffix,
                               const ByteTrie* user_defined)
    : user_defined_(user_defined),
      blank_(spec.escape_whitespaces ? "▁" : " "),
      add_dummy_prefix_(spec.add_dummy_prefix),
      removes_blanks_(spec.remove_extra_whitespaces),
      blank_is_suffix_(blank_is_suffix) {
  if (!spec.character_map.empty()) map_.Parse(spec.character_map);
}

std::string_view TextNormalizer::Next(std::string_view text, size_t* length) const {
  int32_t id = 0;
  *length = user_defined_ == nullptr ? 0 : user_defined_->LongestPrefix(text, &id);
  if (*length > 0) return text.substr(0, *length);
  std::string_view to;
  *length = map_.LongestPrefix(text, &to);
  if (*length > 0) return to;
  const Utf8Char c = DecodeUtf8(text, 0);
  *length = static_cast<size_t>(c.length);
  return c.valid ? text.substr(0, *length) : "\uFFFD";
}

std::string TextNormalizer::Normalize(std::string_view text, bool dummy_prefix) const {
  std::string out;
  size_t length = 0;
  while (removes_blanks_ && !text.empty() && Next(text, &length) == " ") text.remove_prefix(length);
  if (text.empty()) return out;
  out.reserve(text.size() + text.size() / 2);
  const bool adds_blank = dummy_prefix && add_dummy_prefix_;
  if (adds_blank && !blank_is_suffix_) out += blank_;
  bool after_blank = removes_blanks_;
  while (!text.empty()) {
    std::string_view part = Next(text, &length);
    while (after_blank && part.starts_with(' ')) part.remove_prefix(1);
    if (!part.empty()) after_blank = removes_blanks_ && part.ends_with(' ');
    for (const char c : part) {
      if (c == ' ') {
        out += blank_;
      } else {
        out += c;
      }
    }
    text.remove_prefix(length);
  }
  while (removes_blanks_ && out.ends_with(blank_)) out.resize(out.size() - blank_.size());
  if (adds_blank && blank_is_suffix_) out += blank_;
  return out;
}

}  // namespace tessera::data
