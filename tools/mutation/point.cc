// SPDX-License-Identifier: Apache-2.0
#include "tools/mutation/point.h"

#include <charconv>

namespace tessera::mutation {
namespace {

bool ReadNumber(const std::string& text, int64_t* value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && stop == end;
}

}  // namespace

std::string JoinFields(const std::vector<std::string>& fields) {
  std::string line;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) line += '\t';
    for (char c : fields[i]) {
      if (c == '\t') {
        line += "\\t";
      } else if (c == '\n') {
        line += "\\n";
      } else if (c == '\\') {
        line += "\\\\";
      } else {
        line += c;
      }
    }
  }
  return line;
}

std::vector<std::string> SplitFields(std::string_view line) {
  std::vector<std::string> fields(1);
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\t') {
      fields.emplace_back();
    } else if (line[i] == '\\' && i + 1 < line.size()) {
      const char c = line[++i];
      fields.back() += c == 't' ? '\t' : c == 'n' ? '\n' : c;
    } else {
      fields.back() += line[i];
    }
  }
  return fields;
}

std::string WritePoint(const Point& point) {
  return JoinFields({std::to_string(point.begin), std::to_string(point.end),
                     std::to_string(point.line), point.kind, point.wrap, point.function,
                     point.mutated});
}

std::optional<Point> ReadPoint(std::string_view line) {
  const std::vector<std::string> fields = SplitFields(line);
  Point point;
  if (fields.size() != 7 || !ReadNumber(fields[0], &point.begin) ||
      !ReadNumber(fields[1], &point.end) || !ReadNumber(fields[2], &point.line)) {
    return std::nullopt;
  }
  point.kind = fields[3];
  point.wrap = fields[4];
  point.function = fields[5];
  point.mutated = fields[6];
  return point;
}

int64_t NumberOf(const std::string& field) {
  int64_t number = -1;
  return ReadNumber(field, &number) ? number : -1;
}

}  // namespace tessera::mutation
