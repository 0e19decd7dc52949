// SPDX-License-Identifier: Apache-2.0
#include "tools/text_lines.h"

#include <algorithm>
#include <span>

#include "base/file.h"
#include "data/dataset/record_input.h"
#include "data/dataset/text_file.h"

namespace tessera::tools {

Status ForEachLine(const std::string& path, const std::function<Status(std::string_view)>& visit) {
  const std::string name = path == "-" ? "standard input" : path;
  TESSERA_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path == "-" ? "/dev/stdin" : path));
  TESSERA_ASSIGN_OR_RETURN(const std::string_view text, data::TextIn(bytes, name));
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    TESSERA_RETURN_IF_ERROR(visit(line));
    begin = end + 1;
  }
  return OkStatus();
}

StatusOr<TextLines> TextLines::Read(const std::string& path, const std::string& key) {
  TextLines lines;
  if (path != "-" && data::IsTable(path)) {
    TESSERA_RETURN_IF_ERROR(data::ForEachRecord(
        path, {key}, [&](std::span<const std::string> fields, const std::string& where) {
          lines.texts.push_back(fields[0]);
          lines.places.push_back(where);
          return OkStatus();
        }));
    return lines;
  }
  TESSERA_RETURN_IF_ERROR(ForEachLine(path, [&](std::string_view line) {
    lines.texts.emplace_back(line);
    return OkStatus();
  }));
  return lines;
}

std::string TextLines::PlaceOf(const std::string& path, size_t i) const {
  if (!places.empty()) return places[i];
  return Concat(path == "-" ? "standard input" : path, ":", i + 1);
}

}  // namespace tessera::tools
