// SPDX-License-Identifier: Apache-2.0
// A source whose mutants can be switched on at run time:
//
//   return a < b;     becomes     return (TesseraMutant(7) ? (a <= b) : (a < b));
//
// Lines keep their numbers. mutation_points.cc has the switches.
#ifndef TESSERA_TOOLS_MUTATION_REWRITE_H_
#define TESSERA_TOOLS_MUTATION_REWRITE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/mutation/point.h"

namespace tessera::mutation {

inline constexpr int64_t kMostPoints = 1 << 18;

// In the order of the result, points have the numbers first, first + 1, ...: `points` is sorted by
// begin; of those with one begin the longest comes first; of those with one range the one that
// leaves a statement out, then those that change a whole condition or result. A point that overlaps
// one before it without lying inside is removed.
std::string Rewrite(std::string_view source, std::vector<Point>& points, int64_t first);

}  // namespace tessera::mutation

#endif  // TESSERA_TOOLS_MUTATION_REWRITE_H_
