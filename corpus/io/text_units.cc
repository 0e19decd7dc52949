// SPDX-License-Identifier: Apache-2.0
#include "corpus/io/text_units.h"

#include <algorithm>

namespace tessera::corpus {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

}  // namespace

std::string_view Bare(std::string_view unit) {
  const size_t begin = unit.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return unit.substr(begin, unit.find_last_not_of(kBlanks) - begin + 1);
}

std::vector<std::string_view> UnitsOf(std::string_view text, TextUnit unit) {
  if (unit == TextUnit::kDocument) return {text};
  std::vector<std::string_view> units;
  size_t begin = 0;
  bool blank_seen = false;  // since the unit's last line with anything
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    const bool blank = Bare(text.substr(at, end - at)).empty();
    const bool cut = unit == TextUnit::kLine ? at > begin : blank_seen && !blank;
    if (cut) {
      units.push_back(text.substr(begin, at - begin));
      begin = at;
      blank_seen = false;
    }
    blank_seen = blank_seen || blank;
    at = end;
  }
  if (begin < text.size()) units.push_back(text.substr(begin));
  return units;
}

}  // namespace tessera::corpus
