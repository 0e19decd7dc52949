// SPDX-License-Identifier: Apache-2.0
#include "train/config/comma_list.h"

#include <algorithm>

namespace tessera::train {

std::vector<std::string> SplitAtCommas(const std::string& text) {
  std::vector<std::string> parts;
  if (text.empty()) return parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace tessera::train
