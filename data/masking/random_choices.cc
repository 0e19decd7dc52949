// SPDX-License-Identifier: Apache-2.0
#include "data/masking/random_choices.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tessera::data {

int64_t RandomChoices::Below(int64_t n) {
  return std::min(n - 1, static_cast<int64_t>(Uniform() * static_cast<double>(n)));
}

int64_t RandomChoices::Poisson(double mean) {
  const double limit = std::exp(-mean);
  int64_t count = 0;
  for (double product = Uniform(); product > limit; product *= Uniform()) ++count;
  return count;
}

void RandomChoices::Shuffle(std::vector<int64_t>* values) {
  for (int64_t i = std::ssize(*values) - 1; i > 0; --i) {
    std::swap((*values)[static_cast<size_t>(i)], (*values)[static_cast<size_t>(Below(i + 1))]);
  }
}

std::vector<int64_t> RandomChoices::Segments(int64_t items, int64_t segments) {
  // Which of the items after the first begin a new part.
  std::vector<int64_t> begins(static_cast<size_t>(items - 1), 0);
  std::fill_n(begins.begin(), segments - 1, 1);
  Shuffle(&begins);
  std::vector<int64_t> lengths = {1};
  for (const int64_t begin : begins) {
    if (begin != 0) lengths.push_back(0);
    ++lengths.back();
  }
  return lengths;
}

}  // namespace tessera::data
