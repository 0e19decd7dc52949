// SPDX-License-Identifier: Apache-2.0
#include "data/classification/metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace tessera::data {
namespace {

// Of every second value from `first` on: its rank among them, from 1; equal values share the mean
// of their ranks. No value may be NaN.
std::vector<float> AverageRanks(std::span<const double> values, size_t first) {
  std::vector<size_t> order(values.size() / 2);
  std::iota(order.begin(), order.end(), size_t{0});
  const auto value = [&](size_t i) { return values[2 * order[i] + first]; };
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return values[2 * a + first] < values[2 * b + first]; });
  std::vector<float> ranks(order.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin + 1;
    while (end < order.size() && value(end) == value(begin)) ++end;
    // The mean of begin + 1 ... end.
    const float rank = 0.5F * static_cast<float>(begin + 1 + end);
    for (; begin < end; ++begin) ranks[order[begin]] = rank;
  }
  return ranks;
}

}  // namespace

std::vector<double> LabelCounts(std::span<const float> logits, std::span<const int64_t> labels,
                                int64_t num_labels) {
  const auto width = static_cast<size_t>(num_labels);
  TESSERA_CHECK(logits.size() == labels.size() * width, "LabelCounts", "sizes do not agree");
  std::vector<double> counts(3 * width, 0.0);
  for (size_t r = 0; r < labels.size(); ++r) {
    if (labels[r] < 0) continue;
    TESSERA_CHECK(labels[r] < num_labels, "LabelCounts", "label ", labels[r], " of ", num_labels);
    const std::span<const float> row = logits.subspan(r * width, width);
    const auto truth = static_cast<size_t>(labels[r]);
    const auto guess = static_cast<size_t>(std::max_element(row.begin(), row.end()) - row.begin());
    counts[truth] += 1;
    counts[width + guess] += 1;
    if (truth == guess) counts[2 * width + truth] += 1;
  }
  return counts;
}

ClassScores ScoresOfLabels(std::span<const double> counts, int64_t num_labels) {
  const auto width = static_cast<size_t>(num_labels);
  const std::span<const double> truths = counts.subspan(0, width);
  const std::span<const double> guesses = counts.subspan(width, width);
  const std::span<const double> both_of = counts.subspan(2 * width, width);
  const double all = std::accumulate(truths.begin(), truths.end(), 0.0);
  const double right = std::accumulate(both_of.begin(), both_of.end(), 0.0);
  ClassScores scores;
  if (all == 0) return scores;
  scores.accuracy = right / all;
  const auto f1 = [&](size_t label) {
    const double both = truths[label] + guesses[label];
    return both > 0 ? 2 * both_of[label] / both : 0.0;
  };
  if (width == 2) {
    scores.f1 = f1(1);
  } else {
    double sum = 0;
    double occurring = 0;
    for (size_t label = 0; label < width; ++label) {
      if (truths[label] + guesses[label] == 0) continue;
      sum += f1(label);
      ++occurring;
    }
    scores.f1 = sum / occurring;
  }
  double products = 0;
  double truth_squares = 0;
  double guess_squares = 0;
  for (size_t label = 0; label < width; ++label) {
    products += truths[label] * guesses[label];
    truth_squares += truths[label] * truths[label];
    guess_squares += guesses[label] * guesses[label];
  }
  const double scale = std::sqrt(all * all - guess_squares) * std::sqrt(all * all - truth_squares);
  scores.matthews = scale > 0 ? (right * all - products) / scale : 0.0;
  return scores;
}

std::vector<double> TopCounts(std::span<const float> logits, std::span<const int64_t> labels,
                              int64_t num_labels, int64_t k) {
  const auto width = static_cast<size_t>(num_labels);
  TESSERA_CHECK(logits.size() == labels.size() * width, "TopCounts", "sizes do not agree");
  std::vector<double> counts(3, 0.0);
  for (size_t r = 0; r < labels.size(); ++r) {
    if (labels[r] < 0) continue;
    TESSERA_CHECK(labels[r] < num_labels, "TopCounts", "label ", labels[r], " of ", num_labels);
    const std::span<const float> row = logits.subspan(r * width, width);
    const float mine = row[static_cast<size_t>(labels[r])];
    // A label shares its place with those of the same logit that come before it.
    int64_t better = 0;
    for (size_t j = 0; j < width; ++j) {
      const bool before = row[j] == mine && static_cast<int64_t>(j) < labels[r];
      if (row[j] > mine || before) ++better;
    }
    counts[0] += better == 0 ? 1 : 0;
    counts[1] += better < k ? 1 : 0;
    counts[2] += 1;
  }
  return counts;
}

std::vector<double> MomentCounts(std::span<const float> guesses, std::span<const float> truths) {
  TESSERA_CHECK(guesses.size() == truths.size(), "MomentCounts", "sizes do not agree");
  std::vector<double> sums(7, 0.0);
  for (size_t i = 0; i < guesses.size(); ++i) {
    const double x = guesses[i];
    const double y = truths[i];
    const double terms[] = {1, x, y, x * x, y * y, x * y, (x - y) * (x - y)};
    for (size_t t = 0; t < sums.size(); ++t) sums[t] += terms[t];
  }
  return sums;
}

double PearsonOfMoments(std::span<const double> sums) {
  const double n = sums[0];
  const double across = n * sums[5] - sums[1] * sums[2];
  const double x = n * sums[3] - sums[1] * sums[1];
  const double y = n * sums[4] - sums[2] * sums[2];
  return x > 0 && y > 0 ? across / std::sqrt(x * y) : 0.0;
}

double SpearmanOfPairs(std::span<const double> pairs) {
  TESSERA_CHECK(pairs.size() % 2 == 0, "SpearmanOfPairs", "a guess has no truth");
  const auto is_nan = [](double x) { return std::isnan(x); };
  if (std::any_of(pairs.begin(), pairs.end(), is_nan)) return 0.0;
  return PearsonOfMoments(MomentCounts(AverageRanks(pairs, 0), AverageRanks(pairs, 1)));
}

std::vector<double> AnswerCounts(std::span<const float> logits, std::span<const float> labels) {
  TESSERA_CHECK(logits.size() == labels.size(), "AnswerCounts", "sizes do not agree");
  std::vector<double> counts(5, 0.0);
  for (size_t i = 0; i < logits.size(); ++i) {
    const bool guess = logits[i] > 0;
    const bool truth = labels[i] > 0.5F;
    counts[0] += guess == truth ? 1 : 0;
    counts[1] += 1;
    counts[2] += guess && truth ? 1 : 0;
    counts[3] += guess && !truth ? 1 : 0;
    counts[4] += !guess && truth ? 1 : 0;
  }
  return counts;
}

}  // namespace tessera::data
