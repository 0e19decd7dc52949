// SPDX-License-Identifier: Apache-2.0
// A place of a source that can be mutated, and the line that says so in a file.
//
//   begin end line kind wrap function mutated      with tabs between; \t, \n and \\ are escaped
//
// The standard library alone: find_points.cc has it, too, which bazel does not build.
#ifndef TESSERA_TOOLS_MUTATION_POINT_H_
#define TESSERA_TOOLS_MUTATION_POINT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::mutation {

struct Point {
  int64_t begin = 0;  // of the original expression: bytes of the file
  int64_t end = 0;
  int64_t line = 0;      // from 1 on
  std::string kind;      // arithmetic, compare, condition, constant, logic, return or statement
  std::string wrap;      // what the original expression is an argument of, so that both have a type
  std::string function;  // "Class::Name" around it
  std::string mutated;   // the expression instead
};

std::string WritePoint(const Point& point);
// Nothing for a line that is none.
std::optional<Point> ReadPoint(std::string_view line);

// A line's fields, and the line; nothing is lost.
std::string JoinFields(const std::vector<std::string>& fields);
std::vector<std::string> SplitFields(std::string_view line);
// -1 for a field that is no number.
int64_t NumberOf(const std::string& field);

}  // namespace tessera::mutation

#endif  // TESSERA_TOOLS_MUTATION_POINT_H_
