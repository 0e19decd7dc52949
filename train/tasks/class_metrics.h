// SPDX-License-Identifier: Apache-2.0
// The metrics of classifiers, by what their labels are.
#ifndef TESSERA_TRAIN_TASKS_CLASS_METRICS_H_
#define TESSERA_TRAIN_TASKS_CLASS_METRICS_H_

#include <cstdint>
#include <memory>

#include "train/task.h"

namespace tessera::train {

// accuracy, f1, matthews (data/classification/metrics.h).
std::shared_ptr<const EvaluationMetrics> SingleLabelMetrics(int64_t num_labels);
// accuracy, and top5 where there are more than five labels.
std::shared_ptr<const EvaluationMetrics> TopMetrics(int64_t num_labels);
// accuracy: the share of single yes-or-no answers that are right, where sklearn's accuracy_score
// counts the rows whose answers are all right; f1 over all answers (micro).
std::shared_ptr<const EvaluationMetrics> AnswerMetrics();
// pearson, spearman, mse.
std::shared_ptr<const EvaluationMetrics> NumberMetrics();

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TASKS_CLASS_METRICS_H_
