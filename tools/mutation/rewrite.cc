// SPDX-License-Identifier: Apache-2.0
#include "tools/mutation/rewrite.h"

#include <algorithm>
#include <tuple>

namespace tessera::mutation {
namespace {

// On the first line, before what stands there.
constexpr const char* kSwitches =
    "extern \"C\" { extern bool tessera_mutation_points[]; bool tessera_mutation_taken(int); } "
    "static inline __attribute__((always_inline, unused)) bool TesseraMutant(int point) { return "
    "__builtin_expect(tessera_mutation_points[point], 0) && tessera_mutation_taken(point); } ";

// Outermost first.
int Depth(const Point& point) {
  return point.kind == "statement"                             ? 0
         : point.kind == "condition" || point.kind == "return" ? 1
                                                               : 2;
}

void Sort(std::vector<Point>& points) {
  std::stable_sort(points.begin(), points.end(), [](const Point& a, const Point& b) {
    return std::tuple(a.begin, -a.end, Depth(a)) < std::tuple(b.begin, -b.end, Depth(b));
  });
}

void RemoveOverlaps(std::string_view source, std::vector<Point>& points) {
  std::vector<Point> kept;
  std::vector<int64_t> ends;
  for (Point& point : points) {
    while (!ends.empty() && ends.back() <= point.begin) ends.pop_back();
    const bool inside = point.begin >= 0 && point.begin < point.end &&
                        point.end <= static_cast<int64_t>(source.size());
    if (!inside || (!ends.empty() && point.end > ends.back())) continue;
    ends.push_back(point.end);
    kept.push_back(std::move(point));
  }
  points = std::move(kept);
}

// source[begin, end) with the points from *next on that lie there.
void Emit(std::string_view source, int64_t begin, int64_t end, const std::vector<Point>& points,
          int64_t first, size_t* next, std::string* out) {
  while (*next < points.size() && points[*next].begin < end) {
    const Point& point = points[*next];
    out->append(source.substr(begin, point.begin - begin));
    out->append("(TesseraMutant(" + std::to_string(first + static_cast<int64_t>(*next)) + ") ? (" +
                point.mutated + ") : " + point.wrap + "(");
    ++*next;
    Emit(source, point.begin, point.end, points, first, next, out);
    out->append("))");
    begin = point.end;
  }
  out->append(source.substr(begin, end - begin));
}

}  // namespace

std::string Rewrite(std::string_view source, std::vector<Point>& points, int64_t first) {
  Sort(points);
  RemoveOverlaps(source, points);
  std::string text = kSwitches;
  size_t next = 0;
  Emit(source, 0, static_cast<int64_t>(source.size()), points, first, &next, &text);
  return text;
}

}  // namespace tessera::mutation
