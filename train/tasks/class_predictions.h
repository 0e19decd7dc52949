// SPDX-License-Identifier: Apache-2.0
// The rows of a classifier's predictions, by what its labels are.
#ifndef TESSERA_TRAIN_TASKS_CLASS_PREDICTIONS_H_
#define TESSERA_TRAIN_TASKS_CLASS_PREDICTIONS_H_

#include <string>
#include <vector>

#include "train/task.h"

namespace tessera::train {

// Each gives the objective `predict`, with labels as far as it is `labelled`.
//
// One of these names; `probabilities` are the softmax of the logits, in the names' order.
void PredictNames(std::vector<std::string> names, Objective* objective);
// Those of these names whose answer is yes, as a list; `probabilities` are the sigmoids of the
// logits.
void PredictAnswers(std::vector<std::string> names, Objective* objective);
// A number.
void PredictNumbers(Objective* objective);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TASKS_CLASS_PREDICTIONS_H_
