// SPDX-License-Identifier: Apache-2.0
#include "base/nearest_name.h"

#include <algorithm>
#include <numeric>

namespace tessera {
namespace {

// Insertions, deletions and replacements that turn one name into the other; `limit` where there are
// that many or more.
size_t EditDistance(std::string_view a, std::string_view b, size_t limit) {
  if (std::max(a.size(), b.size()) - std::min(a.size(), b.size()) >= limit) return limit;
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    size_t least = row[0];
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
      least = std::min(least, row[j + 1]);
    }
    if (least >= limit) return limit;  // No later row has a smaller number.
  }
  return std::min(row.back(), limit);
}

}  // namespace

std::string NearestName(std::string_view name, const std::vector<std::string>& known) {
  std::string best;
  size_t least = std::max<size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const size_t distance = EditDistance(name, candidate, least);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

std::string DidYouMean(std::string_view name, const std::vector<std::string>& known) {
  const std::string nearest = NearestName(name, known);
  return nearest.empty() ? "" : "; did you mean '" + nearest + "'?";
}

std::string OneOf(const std::vector<std::string>& names) {
  std::string list;
  for (size_t i = 0; i < names.size(); ++i) {
    list += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  }
  return list;
}

}  // namespace tessera
