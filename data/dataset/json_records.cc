// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/json_records.h"

#include <algorithm>

#include "base/file.h"
#include "base/json_ordered.h"
#include "data/dataset/text_file.h"

namespace tessera::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kBlanks = " \t\r\n";

Status VisitObject(const Json& record, const std::string& where, const JsonRecordVisitor& visit) {
  if (!record.is_object()) return InvalidArgument(where, ": not a JSON object");
  return visit(record, where);
}

}  // namespace

Status ForEachJsonRecord(const std::string& path, std::string_view text,
                         const JsonRecordVisitor& visit) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const size_t first = text.find_first_not_of(kBlanks);
  if (first != std::string_view::npos && text[first] == '[') {
    TESSERA_ASSIGN_OR_RETURN(const Json array, ParseOrderedJson(text, path));
    for (size_t i = 0; i < array.size(); ++i) {
      TESSERA_RETURN_IF_ERROR(VisitObject(array[i], Concat(path, "[", i, "]"), visit));
    }
    return OkStatus();
  }
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(kBlanks) == std::string_view::npos) continue;
    const std::string where = Concat(path, ":", number);
    TESSERA_ASSIGN_OR_RETURN(const Json record, ParseOrderedJson(line, where));
    TESSERA_RETURN_IF_ERROR(VisitObject(record, where, visit));
  }
  return OkStatus();
}

Status ForEachJsonRecord(const std::string& path, const JsonRecordVisitor& visit) {
  TESSERA_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  TESSERA_ASSIGN_OR_RETURN(const std::string_view text, TextIn(bytes, path));
  return ForEachJsonRecord(path, text, visit);
}

}  // namespace tessera::data
