// SPDX-License-Identifier: Apache-2.0
#include "models/generation/stop_strings.h"

#include <algorithm>
#include <utility>

namespace tessera::models {

std::string StopStrings::Push(std::string_view piece) {
  if (found_) return "";
  held_ += piece;
  size_t first_end = std::string::npos;
  size_t begin = 0;
  for (const std::string& text : *strings_) {
    const size_t at = held_.find(text);
    if (at == std::string::npos) continue;
    const size_t end = at + text.size();
    if (end < first_end || (end == first_end && at < begin)) {
      first_end = end;
      begin = at;
    }
  }
  if (first_end != std::string::npos) {
    found_ = true;
    std::string before = held_.substr(0, begin);
    held_.clear();
    return before;
  }
  // The longest end of the text that a stop string begins with stays back.
  size_t keep = 0;
  for (const std::string& text : *strings_) {
    for (size_t n = std::min(text.size() - 1, held_.size()); n > keep; --n) {
      if (held_.compare(held_.size() - n, n, text, 0, n) == 0) keep = n;
    }
  }
  std::string certain = held_.substr(0, held_.size() - keep);
  held_.erase(0, certain.size());
  return certain;
}

std::string StopStrings::Finish() { return std::exchange(held_, std::string()); }

}  // namespace tessera::models
