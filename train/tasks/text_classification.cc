// SPDX-License-Identifier: Apache-2.0
// Classification of texts and pairs of texts from a table: names, scores, or several answers.
#include <algorithm>
#include <tuple>

#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/options.h"
#include "data/classification/text_classification_dataset.h"
#include "data/dataset/record_input.h"
#include "data/dataset/subset.h"
#include "models/classification.h"
#include "models/family.h"
#include "nlohmann/json.hpp"
#include "train/config/comma_list.h"
#include "train/tasks/class_metrics.h"
#include "train/tasks/class_predictions.h"
#include "train/tasks/glue_tasks.h"
#include "train/tasks/label_setup.h"

namespace tessera::train {
namespace {

using data::LabelKind;
using data::TextClassificationDataset;
using TextDatasetPtr = std::shared_ptr<const TextClassificationDataset>;

constexpr int64_t kLongestRow = 512;  // where the model has no positions of its own

struct ClassifierOptions : TableOptions {
  std::string glue_task;

  static const OptionTable& Table() {
    static const auto* table = new OptionTable(
        OptionTable::Of<ClassifierOptions>("text_classification")
            .Include<ClassifierOptions, TableOptions>()
            .Add(
                "glue_task", &ClassifierOptions::glue_task,
                "one of GLUE's: columns are found by its names, and metrics are those it is judged "
                "by",
                {.choices = GlueTaskNames(),
                 .unset = "none",
                 .evaluation = true,
                 .aliases = {{"task_name", "Hugging Face"}}}));
    return *table;
  }
};

// Whether the records say what they are labelled with.
bool HasLabels(const std::string& path) {
  if (!data::IsTable(path)) return false;
  const auto columns = data::ColumnsOf(path);
  return columns.ok() && HasColumn(*columns, "label");
}

int FitTextClassification(const RunConfig& config, const models::Architecture* now) {
  if (now != nullptr && now->Does(models::Capability::kTextLabels)) return 3;
  const std::string path = config.Sources()[0].path;
  const bool is_table = data::HasHeader(path) || config.IsSet("glue_task");
  return is_table || HasLabels(path) ? 3 : 1;
}

// With the columns that the table itself says.
StatusOr<ClassifierOptions> KeysOf(const TaskInput& input, const std::string& source) {
  TESSERA_ASSIGN_OR_RETURN(auto keys, input.config.Part<ClassifierOptions>());
  TESSERA_RETURN_IF_ERROR(ChooseColumns(source, FindGlueTask(keys.glue_task), &keys));
  return keys;
}

data::TextClassificationOptions OptionsOf(const TaskInput& input, const TableOptions& keys) {
  data::TextClassificationOptions options;
  options.text_column = keys.text_column;
  options.text_pair_column = keys.text_pair_column;
  options.label_columns = SplitAtCommas(keys.label_columns);  // ChooseColumns has given them
  options.max_length = input.SeqLen(kLongestRow);
  options.token_types = input.model.value("type_vocab_size", 1) > 1;
  options.numbers = input.model.value("problem_type", nlohmann::json()) == "regression" ||
                    input.model.value("num_labels", nlohmann::json()) == 1;
  options.reuse = !input.config.overwrite_cache;
  return options;
}

// Whether the model's head has one label of no said kind, which is a score where the labels of the
// data are all numbers, whole ones too.
bool TakesScores(const TaskInput& input, const ClassifierOptions& keys,
                 const data::LabelColumn& labels) {
  const auto head = models::LabelSpec::FromJson(input.model, "labels");
  const bool one = head.ok() && head->count == 1 && !head->problem;
  if (!one || labels.kind != LabelKind::kNames || FindGlueTask(keys.glue_task) != nullptr) {
    return false;
  }
  data::LabelColumn scores = labels;
  return data::UseNumbers(&scores).ok();
}

StatusOr<TextDatasetPtr> OpenTexts(const TaskInput& input, const ClassifierOptions& keys,
                                   const std::string& path, const char* name,
                                   const std::vector<std::string>& label_names, bool numbers) {
  TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const tokenizer, input.NeedTokenizer());
  data::TextClassificationOptions options = OptionsOf(input, keys);
  options.cache = JoinPath(input.cache, name);
  options.label_names = label_names;
  options.numbers = options.numbers || numbers;
  TESSERA_ASSIGN_OR_RETURN(TextDatasetPtr rows,
                           TextClassificationDataset::Open(path, *tokenizer, options));
  if (!label_names.empty() || !TakesScores(input, keys, rows->labels())) return rows;
  options.numbers = true;
  options.reuse = true;
  return TextClassificationDataset::Open(path, *tokenizer, options);
}

// Whether data to predict say what is to be predicted: a column that is missing says nothing, nor
// does one that is -1 (GLUE's test sets), null or empty throughout.
StatusOr<bool> IsLabelled(const TaskInput& input, const ClassifierOptions& keys,
                          const std::string& source) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> columns, data::ColumnsOf(source));
  const std::vector<std::string> labelled = SplitAtCommas(keys.label_columns);
  for (const std::string& column : labelled) {
    if (!HasColumn(columns, column) && !input.config.IsSet("label_columns")) return false;
  }
  TESSERA_ASSIGN_OR_RETURN(const bool any, data::HoldValues(source, labelled));
  if (!any) return false;
  TESSERA_ASSIGN_OR_RETURN(const TextDatasetPtr rows,
                           OpenTexts(input, keys, source, "val", {}, false));
  const data::LabelColumn& labels = rows->labels();
  if (labels.kind == LabelKind::kNames) return labels.names != std::vector<std::string>{"-1"};
  return std::any_of(labels.values.begin(), labels.values.end(),
                     [](double value) { return value != -1; });
}

// The model says what is to be predicted.
StatusOr<TaskData> OpenUnlabelled(const TaskInput& input, ClassifierOptions keys,
                                  const std::string& source) {
  TaskData data;
  data.seq_len = input.SeqLen(kLongestRow);
  keys.label_columns = "";
  TESSERA_ASSIGN_OR_RETURN(data.validation, OpenTexts(input, keys, source, "val", {}, false));
  data.objective.labelled = false;
  const std::vector<std::string> names = models::LabelNames(input.model);
  const nlohmann::json type = input.model.value("problem_type", nlohmann::json());
  if (type == "multi_label_classification") {
    PredictAnswers(names, &data.objective);
  } else if (type == "regression" || names.size() == 1) {
    PredictNumbers(&data.objective);
  } else {
    PredictNames(names, &data.objective);
  }
  return data;
}

// An evaluation's scores or answers, which the model's head must give in this order.
Status CheckHead(const TaskInput& input, const data::LabelColumn& labels,
                 const TableOptions& keys) {
  const std::vector<std::string> known = models::LabelNames(input.model);
  const bool answers = labels.kind == LabelKind::kAnswers;
  const std::vector<std::string> found =
      answers ? SplitAtCommas(keys.label_columns) : std::vector<std::string>(1);
  const bool named = !known.empty() && known[0] != "LABEL_0";
  if (known.size() == found.size() && (!answers || !named || known == found)) return OkStatus();
  return InvalidArgument(input.sources[0].path, ": label_columns ", keys.label_columns,
                         answers ? "" : " (scores)", " are not the model's labels, which are ",
                         absl::StrJoin(known, ","));
}

// What the model's head must be for these labels.
void DescribeHead(const TaskInput& input, const data::LabelColumn& labels, const TableOptions& keys,
                  TaskData* data) {
  const bool answers = labels.kind == LabelKind::kAnswers;
  const bool has_score =
      input.model.contains("id2label") && !answers && models::LabelNames(input.model).size() == 1;
  if (!has_score) {
    models::SetLabels(
        answers ? SplitAtCommas(keys.label_columns) : std::vector<std::string>{"score"},
        &*data->model_changes);
    data->model_changes["num_labels"] = nullptr;
  }
  data->model_changes["problem_type"] = answers ? "multi_label_classification" : "regression";
  data->replaces_head = true;
}

StatusOr<TaskData> OpenTextClassification(const TaskInput& input) {
  const RunConfig& config = input.config;
  TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const tokenizer, input.NeedTokenizer());
  TESSERA_RETURN_IF_ERROR(input.NeedToken(tokenizer->cls_id(), "classification").status());
  TESSERA_ASSIGN_OR_RETURN(const std::string source, input.OneSource());
  TESSERA_ASSIGN_OR_RETURN(const ClassifierOptions keys, KeysOf(input, source));
  const GlueTask* const task = FindGlueTask(keys.glue_task);
  const bool numbers = task != nullptr && task->numbers;
  if (input.prediction) {
    TESSERA_ASSIGN_OR_RETURN(const bool labelled, IsLabelled(input, keys, source));
    if (!labelled) return OpenUnlabelled(input, keys, source);
  }
  TaskData data;
  data.seq_len = input.SeqLen(kLongestRow);
  const char* const name = input.evaluation ? "val" : "train";
  TESSERA_ASSIGN_OR_RETURN(TextDatasetPtr rows, OpenTexts(input, keys, source, name, {}, numbers));
  const LabelKind kind = rows->labels().kind;
  std::vector<std::string> names;
  if (kind == LabelKind::kNames) {
    if (input.evaluation) {
      TESSERA_ASSIGN_OR_RETURN(names, LabelsForEvaluation(input, rows->labels().names));
    } else {
      names = ChooseLabels(input, rows->labels().names, &data);
      data.model_changes["problem_type"] = "single_label_classification";
    }
    TESSERA_ASSIGN_OR_RETURN(rows, OpenTexts(input, keys, source, name, names, numbers));
    data.objective.metrics = SingleLabelMetrics(std::ssize(names));
    PredictNames(NamesAfterTraining(input, data, names), &data.objective);
  } else {
    if (!keys.class_weights.empty()) {
      return InvalidArgument("class_weights are for labels of which each row has one");
    }
    if (config.label_smoothing > 0) {
      return InvalidArgument("label_smoothing is for labels of which each row has one");
    }
    DescribeHead(input, rows->labels(), keys, &data);
    const bool answers = kind == LabelKind::kAnswers;
    if (input.evaluation) TESSERA_RETURN_IF_ERROR(CheckHead(input, rows->labels(), keys));
    data.objective.metrics = answers ? AnswerMetrics() : NumberMetrics();
    if (answers) PredictAnswers(SplitAtCommas(keys.label_columns), &data.objective);
    if (!answers) PredictNumbers(&data.objective);
  }
  if (task != nullptr && (kind == LabelKind::kAnswers || (kind == LabelKind::kNumber) != numbers)) {
    return InvalidArgument(source, ": glue_task ", task->name, " has one column of ",
                           numbers ? "scores" : "classes", " (", keys.label_columns, ")");
  }
  if (task != nullptr) data.objective.metrics = MetricsOf(*task, data.objective.metrics);
  if (input.evaluation) {
    data.model_changes = JsonMember::Object();
    data.replaces_head = false;
    data.validation = rows;
    return data;
  }
  const std::vector<int64_t> labels(rows->labels().values.begin(), rows->labels().values.end());
  if (kind == LabelKind::kNames) {
    TESSERA_ASSIGN_OR_RETURN(data.objective.class_weights,
                             ClassWeights(keys.class_weights, names, labels));
  }
  if (config.Validation().empty()) {
    std::tie(data.train, data.validation) =
        data::SplitDataset(rows, {.fraction = config.val_fraction, .from_end = true});
    return data;
  }
  data.train = rows;
  TESSERA_ASSIGN_OR_RETURN(
      const TextDatasetPtr held_out,
      OpenTexts(input, keys, config.Validation(), "val", names, kind == LabelKind::kNumber));
  if (held_out->labels().kind != kind) {
    return InvalidArgument(config.Validation(), ": its labels are scores, those of ", source,
                           " are names");
  }
  data.validation = held_out;
  return data;
}

const TaskKind kTextClassification = {.name = "text_classification",
                                      .help = "texts or pairs of texts with labels, from a table",
                                      .capability = models::Capability::kTextLabels,
                                      .fit = FitTextClassification,
                                      .options = &ClassifierOptions::Table(),
                                      .open = OpenTextClassification,
                                      .predicts = true};
const TaskRegistration registered_text_classification(&kTextClassification);

}  // namespace
}  // namespace tessera::train
