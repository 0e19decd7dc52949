// What classification tasks share: the label set and class weights.
#ifndef TESSERA_TRAIN_TASKS_LABEL_SETUP_H_
#define TESSERA_TRAIN_TASKS_LABEL_SETUP_H_

#include <string>
#include <vector>

#include "core/status.h"
#include "core/tensor.h"
#include "train/task.h"

namespace tessera::train {

// The names of a model's labels that data with the names `found` can use: the model's own where it
// has them all, "0", "1", ... where the data numbers them; empty where the model's do not fit.
std::vector<std::string> ModelLabels(const nlohmann::json& model,
                                     const std::vector<std::string>& found);

// The label set of training data `found`: the model's where it fits, else the data's own, for which
// the head is made afresh (data->model_changes, data->replaces_head).
std::vector<std::string> ChooseLabels(const TaskInput& input, const std::vector<std::string>& found,
                                      TaskData* data);
// Of an evaluation: the model's, or a status that says what does not fit.
absl::StatusOr<std::vector<std::string>> LabelsForEvaluation(const TaskInput& input,
                                                             const std::vector<std::string>& found);

// `text`: "" (undefined), "balanced" (rows / (labels * rows of the label)), or a number per label.
absl::StatusOr<Tensor> ClassWeights(const std::string& text, const std::vector<std::string>& names,
                                    const std::vector<int64_t>& labels);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TASKS_LABEL_SETUP_H_
