// SPDX-License-Identifier: Apache-2.0
#include "train/config/comma_list.h"

#include "absl/strings/str_split.h"

namespace tessera::train {

std::vector<std::string> SplitAtCommas(const std::string& text) {
  if (text.empty()) return {};
  return absl::StrSplit(text, ',');
}

}  // namespace tessera::train
