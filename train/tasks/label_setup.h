// SPDX-License-Identifier: Apache-2.0
// What classification tasks share: the label set and class weights.
#ifndef TESSERA_TRAIN_TASKS_LABEL_SETUP_H_
#define TESSERA_TRAIN_TASKS_LABEL_SETUP_H_

#include <string>
#include <vector>

#include "base/options.h"
#include "base/status.h"
#include "core/tensor.h"
#include "train/task.h"

namespace tessera::train {

// Of classifiers.
struct LabelOptions {
  std::string class_weights;
  std::string label_columns;  // one, or several with commas between

  static const OptionTable& Table() {
    static const auto* table = new OptionTable(
        OptionTable::Of<LabelOptions>("Labels")
            .Add("class_weights", &LabelOptions::class_weights,
                 "how much each label counts in the loss: `balanced`, or a number for each",
                 {.unset = "alike"})
            .Add("label_columns", &LabelOptions::label_columns,
                 "column of the label; several, with commas, for as many yes-or-no labels",
                 {.unset = "`label`",
                  .evaluation = true,
                  .aliases = {{"label_column_name", "Hugging Face"}}}));
    return *table;
  }
};

// Of those that read a table.
struct TableOptions : LabelOptions {
  std::string text_column;
  std::string text_pair_column;

  static const OptionTable& Table() {
    static const auto* table = new OptionTable(
        OptionTable::Of<TableOptions>("Tables of labelled texts")
            .Include<TableOptions, LabelOptions>()
            .Add("text_column", &TableOptions::text_column, "column of the text",
                 {.unset = "`sentence1` and its like; else the first that is no label or index",
                  .evaluation = true,
                  .aliases = {{"text_column_name", "Hugging Face"}}})
            .Add("text_pair_column", &TableOptions::text_pair_column, "column of a second text",
                 {.unset = "`sentence2` and its like; else the second such column, if any",
                  .evaluation = true}));
    return *table;
  }
};

// The names of a model's labels that data with the names `found` can use: the model's own where it
// has them all, "0", "1", ... where the data numbers them; empty where the model's do not fit.
std::vector<std::string> ModelLabels(const nlohmann::json& model,
                                     const std::vector<std::string>& found);

// The label set of training data `found`: the model's where it fits, else the data's own, for which
// the head is made afresh (data->model_changes, data->replaces_head).
std::vector<std::string> ChooseLabels(const TaskInput& input, const std::vector<std::string>& found,
                                      TaskData* data);
// Of an evaluation: the model's, or a status that says what does not fit.
StatusOr<std::vector<std::string>> LabelsForEvaluation(const TaskInput& input,
                                                       const std::vector<std::string>& found);

// `text`: "" (undefined), "balanced" (rows / (labels * rows of the label)), or a number per label.
StatusOr<Tensor> ClassWeights(const std::string& text, const std::vector<std::string>& names,
                              const std::vector<int64_t>& labels);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TASKS_LABEL_SETUP_H_
