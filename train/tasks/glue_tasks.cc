// SPDX-License-Identifier: Apache-2.0
#include "train/tasks/glue_tasks.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "data/dataset/record_input.h"
#include "nlohmann/json.hpp"
#include "train/config/comma_list.h"

namespace tessera::train {
namespace {

using Texts = std::vector<std::pair<std::string, std::string>>;

const Texts& UsualPairs() {
  static const auto* pairs =
      new Texts{{"sentence1", "sentence2"}, {"question1", "question2"}, {"premise", "hypothesis"},
                {"question", "sentence"},   {"text1", "text2"},         {"text_a", "text_b"}};
  return *pairs;
}

const std::vector<GlueTask>& GlueTasks() {
  const Texts sentence = {{"sentence", ""}};
  const Texts sentences = {{"sentence1", "sentence2"}};
  const std::vector<std::string> label = {"label"};
  const Texts accuracy = {{"accuracy", "accuracy"}};
  const Texts both = {{"accuracy", "accuracy"}, {"f1", "f1"}};
  static const auto* tasks = new std::vector<GlueTask>{
      {"cola", sentence, label, false, {{"matthews", "matthews_correlation"}}},
      {"mnli",
       {{"premise", "hypothesis"}, {"sentence1", "sentence2"}},
       {"label", "gold_label"},
       false,
       accuracy},
      {"mrpc",
       {{"sentence1", "sentence2"}, {"#1 String", "#2 String"}},
       {"label", "Quality"},
       false,
       both},
      {"qnli", {{"question", "sentence"}}, label, false, accuracy},
      {"qqp", {{"question1", "question2"}}, {"label", "is_duplicate"}, false, both},
      {"rte", sentences, label, false, accuracy},
      {"sst2", sentence, label, false, accuracy},
      {"stsb",
       sentences,
       {"label", "score"},
       true,
       {{"pearson", "pearson"}, {"spearman", "spearmanr"}, {"mse", "mse"}}},
      {"wnli", sentences, label, false, accuracy}};
  return *tasks;
}

// The first of `pairs` that the table has.
const std::pair<std::string, std::string>* FindTexts(const Texts& pairs,
                                                     const std::vector<std::string>& columns) {
  const auto found = std::find_if(pairs.begin(), pairs.end(), [&](const auto& pair) {
    return HasColumn(columns, pair.first) &&
           (pair.second.empty() || HasColumn(columns, pair.second));
  });
  return found == pairs.end() ? nullptr : &*found;
}

class Judged : public EvaluationMetrics {
 public:
  Judged(const GlueTask& task, std::shared_ptr<const EvaluationMetrics> metrics)
      : names_(task.metrics), metrics_(std::move(metrics)) {}
  size_t num_counts() const override { return metrics_->num_counts(); }
  Reads reads() const override { return metrics_->reads(); }
  StatusOr<std::vector<double>> Count(const data::Batch& batch,
                                      const BatchResult& result) const override {
    return metrics_->Count(batch, result);
  }
  nlohmann::ordered_json Finish(const std::vector<double>& sums) const override {
    const nlohmann::ordered_json all = metrics_->Finish(sums);
    nlohmann::ordered_json json;
    for (const auto& [ours, theirs] : names_) json[theirs] = all.at(ours);
    return json;
  }

 private:
  const Texts names_;
  const std::shared_ptr<const EvaluationMetrics> metrics_;
};

}  // namespace

std::vector<std::string> GlueTaskNames() {
  std::vector<std::string> names;
  for (const GlueTask& task : GlueTasks()) names.push_back(task.name);
  return names;
}

const GlueTask* FindGlueTask(const std::string& name) {
  const auto found = std::find_if(GlueTasks().begin(), GlueTasks().end(),
                                  [&](const GlueTask& task) { return task.name == name; });
  return found == GlueTasks().end() ? nullptr : &*found;
}

bool HasColumn(const std::vector<std::string>& columns, const std::string& name) {
  return std::find(columns.begin(), columns.end(), name) != columns.end();
}

Status ChooseColumns(const std::string& path, const GlueTask* task, TableOptions* keys) {
  if (!keys->text_column.empty() && !keys->label_columns.empty()) return OkStatus();
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> columns, data::ColumnsOf(path));
  if (keys->label_columns.empty()) {
    keys->label_columns = "label";
    for (const std::string& name : task == nullptr ? std::vector<std::string>() : task->labels) {
      if (!HasColumn(columns, name)) continue;
      keys->label_columns = name;
      break;
    }
  }
  if (!keys->text_column.empty()) return OkStatus();
  const auto* texts = FindTexts(task != nullptr ? task->texts : UsualPairs(), columns);
  if (texts == nullptr && task != nullptr) {
    const auto& [first, second] = task->texts[0];
    return InvalidArgument(
        path, ": glue_task ", task->name, " needs ",
        second.empty() ? Concat("a column ", first) : Concat("columns ", first, " and ", second),
        "; it has ", absl::StrJoin(columns, ", "));
  }
  if (texts != nullptr) {
    keys->text_column = texts->first;
    if (keys->text_pair_column.empty()) keys->text_pair_column = texts->second;
    return OkStatus();
  }
  std::vector<std::string> others;
  const std::vector<std::string> labels = SplitAtCommas(keys->label_columns);
  for (const std::string& column : columns) {
    if (!data::IsIndexColumn(column) && !HasColumn(labels, column) &&
        column != keys->text_pair_column) {
      others.push_back(column);
    }
  }
  const size_t most = keys->text_pair_column.empty() ? 2 : 1;
  if (others.empty()) return InvalidArgument(path, ": no column beside the labels");
  if (others.size() > most) {
    return InvalidArgument(path, ": which of the columns ", absl::StrJoin(others, ", "),
                           " are texts? Say text_column (and text_pair_column)");
  }
  keys->text_column = others[0];
  if (others.size() == 2) keys->text_pair_column = others[1];
  return OkStatus();
}

std::shared_ptr<const EvaluationMetrics> MetricsOf(
    const GlueTask& task, std::shared_ptr<const EvaluationMetrics> metrics) {
  return std::make_shared<Judged>(task, std::move(metrics));
}

}  // namespace tessera::train
