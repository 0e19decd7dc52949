// SPDX-License-Identifier: Apache-2.0
// What a classifier is judged by: counts that are added over batches and ranks, and the numbers
// made of their sums.
//
//   std::vector<double> sums = ...;             // of LabelCounts(...) of every batch
//   ClassScores scores = ScoresOfLabels(sums, num_labels);
//
// F1 of two labels is that of label 1 (GLUE's MRPC), of more the mean over the labels that occur in
// truth or prediction (macro). Matthews' correlation for several labels is Gorodkin's (2004).
#ifndef TESSERA_DATA_CLASSIFICATION_METRICS_H_
#define TESSERA_DATA_CLASSIFICATION_METRICS_H_

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::data {

// For each label, the rows where it is true; for each, those where it is guessed; for each, those
// where it is both: 3 * num_labels counts, whatever the number of labels, since the scores below
// need no more of the confusion matrix. The greatest of each row of `logits` [rows, num_labels] is
// the guess; rows whose label is negative do not count.
std::vector<double> LabelCounts(std::span<const float> logits, std::span<const int64_t> labels,
                                int64_t num_labels);

struct ClassScores {
  double accuracy = 0;
  double f1 = 0;
  double matthews = 0;
};
ClassScores ScoresOfLabels(std::span<const double> counts, int64_t num_labels);

// {rows whose label is the greatest logit, rows where it is among the k greatest, rows}.
std::vector<double> TopCounts(std::span<const float> logits, std::span<const int64_t> labels,
                              int64_t num_labels, int64_t k);

// Of numbers: {n, sum x, sum y, sum xx, sum yy, sum xy, sum of squared differences}.
std::vector<double> MomentCounts(std::span<const float> guesses, std::span<const float> truths);
// Pearson's correlation; 0 where one side does not vary.
double PearsonOfMoments(std::span<const double> sums);
// Spearman's correlation of guesses and truths, {x0, y0, x1, y1, ...}: Pearson's of their ranks,
// where equal values share the mean of their ranks (scipy.stats.spearmanr); 0 where one side does
// not vary or has a NaN.
double SpearmanOfPairs(std::span<const double> pairs);

// Of yes-or-no labels [rows, fields], a logit above 0 being yes: {right answers, answers, true
// positives, false positives, false negatives}.
std::vector<double> AnswerCounts(std::span<const float> logits, std::span<const float> labels);

}  // namespace tessera::data

#endif  // TESSERA_DATA_CLASSIFICATION_METRICS_H_
