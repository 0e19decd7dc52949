// SPDX-License-Identifier: Apache-2.0
#include "tools/report/decimation.h"

#include <cmath>
#include <iterator>
#include <set>

namespace tessera::report {

Curve Decimate(const Curve& curve, int most) {
  if (std::ssize(curve) <= most) return curve;
  const int spans = (most - 2) / 3;
  const double first = static_cast<double>(curve.front().step);
  const double width = (static_cast<double>(curve.back().step) - first + 1) / spans;
  std::set<size_t> kept = {0, curve.size() - 1};
  for (size_t i = 0; i < curve.size();) {
    const auto span_of = [&](size_t at) {
      return static_cast<int64_t>((static_cast<double>(curve[at].step) - first) / width);
    };
    const int64_t span = span_of(i);
    size_t least = i, greatest = i, broken = curve.size();
    for (; i < curve.size() && span_of(i) == span; ++i) {
      const double value = curve[i].value;
      if (std::isnan(value)) {
        broken = i;
        continue;
      }
      // Anything is less and greater than what is no number.
      if (!(curve[least].value <= value)) least = i;
      if (!(curve[greatest].value >= value)) greatest = i;
    }
    kept.insert({least, greatest});
    if (broken < curve.size()) kept.insert(broken);
  }
  Curve drawn;
  for (const size_t i : kept) drawn.push_back(curve[i]);
  return drawn;
}

}  // namespace tessera::report
