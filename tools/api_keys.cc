// SPDX-License-Identifier: Apache-2.0
#include "tools/api_keys.h"

#include <algorithm>
#include <string_view>

#include "base/file.h"

namespace tessera::tools {

StatusOr<std::vector<std::string>> ReadKeys(const std::string& path) {
  std::vector<std::string> keys;
  if (path.empty()) return keys;
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::string_view rest = text;
  if (rest.starts_with("\xEF\xBB\xBF")) rest.remove_prefix(3);
  for (int number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find_first_of("\r\n"), rest.size());
    std::string_view key = rest.substr(0, end);
    rest.remove_prefix(std::min(end + (rest.substr(end).starts_with("\r\n") ? 2 : 1), rest.size()));
    const size_t first = std::min(key.find_first_not_of(" \t"), key.size());
    key = key.substr(first, key.find_last_not_of(" \t") + 1 - first);
    if (key.empty()) continue;
    if (!std::all_of(key.begin(), key.end(), [](char c) { return c >= 0x20 && c < 0x7F; })) {
      return InvalidArgument(path, ":", number,
                             ": a key has letters, digits and signs of ASCII alone");
    }
    keys.emplace_back(key);
  }
  if (keys.empty()) return InvalidArgument(path, ": holds no key");
  return keys;
}

}  // namespace tessera::tools
