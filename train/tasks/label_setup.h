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

// What data with the labels `found` call a model's labels: the names that the model has for them,
// or, where the data have ids, "0", "1", ...; empty where neither has them all.
std::vector<std::string> ModelLabels(const nlohmann::json& model,
                                     const std::vector<std::string>& found);

// What training data with the labels `found` call the labels to be learnt, in order of their ids:
// the model's, which keep their names, where these fit; else the data's own, which become the
// model's and for which a head is made (data->model_changes, data->replaces_head). Ids of a model
// whose labels have names fit where all of them are found: ten digits are none of a thousand
// things.
std::vector<std::string> ChooseLabels(const TaskInput& input, const std::vector<std::string>& found,
                                      TaskData* data);
// What the model calls the labels that `data`'s training data call `names`.
std::vector<std::string> NamesAfterTraining(const TaskInput& input, const TaskData& data,
                                            const std::vector<std::string>& names);
// As ChooseLabels, of an evaluation: the model's, or a status that says what does not fit.
StatusOr<std::vector<std::string>> LabelsForEvaluation(const TaskInput& input,
                                                       const std::vector<std::string>& found);

// `text`: "" (undefined), "balanced" (rows / (labels * rows of the label)), or a number per label.
StatusOr<Tensor> ClassWeights(const std::string& text, const std::vector<std::string>& names,
                              const std::vector<int64_t>& labels);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TASKS_LABEL_SETUP_H_
