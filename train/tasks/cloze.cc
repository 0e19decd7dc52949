// SPDX-License-Identifier: Apache-2.0
// Classification by a cloze: which label's words fill the blank of a text best (SuperGLUE).
#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "base/options.h"
#include "core/batch_keys.h"
#include "data/classification/labels.h"
#include "data/dataset/record_input.h"
#include "data/dataset/subset.h"
#include "models/classification.h"
#include "models/family.h"
#include "models/generation/special_tokens.h"
#include "nlohmann/json.hpp"
#include "train/config/comma_list.h"
#include "train/tasks/class_metrics.h"
#include "train/tasks/class_predictions.h"
#include "train/tasks/glue_tasks.h"
#include "train/tasks/label_setup.h"

namespace tessera::train {
namespace {

struct ClozeOptions : TableOptions {
  std::string cloze_pattern;  // "{text} In one word: [MASK]."
  std::string label_words;    // "negative=bad,positive=good"

  static const OptionTable& Table() {
    static const auto* table = new OptionTable(
        OptionTable::Of<ClozeOptions>("cloze")
            .Include<ClozeOptions, TableOptions>()
            .Add("cloze_pattern", &ClozeOptions::cloze_pattern,
                 "the text with its blank: `{text} It was [MASK].`, perhaps with `{pair}`",
                 {.unset = "`{text} [MASK]`", .evaluation = true})
            .Add("label_words", &ClozeOptions::label_words,
                 "what fills the blank for each label: `negative=bad,positive=good`",
                 {.unset = "the labels", .evaluation = true}));
    return *table;
  }
};

int FitCloze(const RunConfig& config, const models::Architecture*) {
  return data::HasHeader(config.Sources()[0].path) ? 3 : 1;
}

using TextFormatPtr = std::shared_ptr<const models::TextFormat>;

// Texts with a blank, of each the label among candidates that all rows share.
class ClozeDataset : public data::Dataset {
 public:
  ClozeDataset(TextFormatPtr format, std::vector<std::vector<int64_t>> candidates)
      : format_(std::move(format)), candidates_(std::move(candidates)) {}
  void Add(std::vector<int64_t> context) { contexts_.push_back(std::move(context)); }
  void set_labels(std::vector<double> labels) { labels_ = std::move(labels); }
  std::vector<int64_t> labels() const { return {labels_.begin(), labels_.end()}; }

  int64_t size() const override { return std::ssize(contexts_); }
  StatusOr<data::Batch> MakeBatch(std::span<const data::Sample> samples) const override {
    std::vector<models::ClozeRow> rows;
    std::vector<int64_t> labels;
    for (const data::Sample& sample : samples) {
      TESSERA_CHECK(sample.index >= 0 && sample.index < size(), "ClozeDataset",
                    "there is no sample ", sample.index);
      rows.push_back({contexts_[static_cast<size_t>(sample.index)], candidates_});
      if (!labels_.empty()) {
        labels.push_back(static_cast<int64_t>(labels_[static_cast<size_t>(sample.index)]));
      }
    }
    TESSERA_ASSIGN_OR_RETURN(const models::Bundle inputs, format_->ClozeInputs(rows));
    data::Batch batch;
    batch.rows = std::ssize(rows);
    batch.tokens = inputs.at(keys::kInputIds).numel();
    batch.targets = batch.rows;
    batch.tensors = inputs;
    if (!labels_.empty()) {
      batch.tensors.set(keys::kLabels, Tensor::FromVector(labels, {batch.rows}));
    }
    return batch;
  }

 private:
  const TextFormatPtr format_;
  const std::vector<std::vector<int64_t>> candidates_;
  std::vector<std::vector<int64_t>> contexts_;
  std::vector<double> labels_;  // none: the texts have no labels
};

// "negative=bad,positive=good": the words of each label; without any, the labels' names.
StatusOr<std::vector<std::string>> WordsOf(const std::vector<std::string>& labels,
                                           const std::string& text) {
  if (text.empty()) return labels;
  std::vector<std::string> words(labels.size());
  for (const std::string& part : SplitAtCommas(text)) {
    const size_t equals = std::min(part.find('='), part.size());
    const auto label = std::find(labels.begin(), labels.end(), part.substr(0, equals));
    if (label == labels.end() || equals + 1 >= part.size()) {
      return InvalidArgument("label_words: '", part, "' is not of the form label=words, with a ",
                             "label of the data");
    }
    words[static_cast<size_t>(label - labels.begin())] = part.substr(equals + 1);
  }
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].empty()) return InvalidArgument("label_words: label '", labels[i], "' has none");
  }
  return words;
}

// `pattern` with {text} and {pair} put in; the text with a blank behind it where there is none.
std::string FillIn(std::string pattern, const std::string& text, const std::string& pair) {
  if (pattern.empty()) pattern = "{text} [MASK]";
  for (const auto& [mark, value] :
       {std::pair<std::string, const std::string&>("{text}", text), {"{pair}", pair}}) {
    for (size_t at = pattern.find(mark); at != std::string::npos;
         at = pattern.find(mark, at + value.size())) {
      pattern.replace(at, mark.size(), value);
    }
  }
  return pattern;
}

struct Rows {
  data::LabelColumn labels;
  std::vector<std::vector<int64_t>> contexts;
};

// Whether the column of the labels holds any; data to predict need not have it.
StatusOr<bool> HasLabels(const TaskInput& input, const std::string& path,
                         const ClozeOptions& keys) {
  if (!input.prediction || input.config.IsSet("label_columns")) return true;
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> columns, data::ColumnsOf(path));
  if (std::find(columns.begin(), columns.end(), keys.label_columns) == columns.end()) return false;
  return data::HoldValues(path, {keys.label_columns});
}

StatusOr<Rows> ReadRows(const TaskInput& input, const std::string& path, int64_t room) {
  TESSERA_ASSIGN_OR_RETURN(auto keys, input.config.Part<ClozeOptions>());
  TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const tokenizer, input.NeedTokenizer());
  TESSERA_RETURN_IF_ERROR(ChooseColumns(path, /*task=*/nullptr, &keys));
  const bool pairs = !keys.text_pair_column.empty();
  TESSERA_ASSIGN_OR_RETURN(const bool labelled, HasLabels(input, path, keys));
  std::vector<std::string> columns = {keys.text_column};
  if (pairs) columns.push_back(keys.text_pair_column);
  if (labelled) columns.push_back(keys.label_columns);
  Rows rows;
  data::LabelReader labels(labelled ? 1 : 0);
  TESSERA_RETURN_IF_ERROR(data::ForEachRecord(
      path, columns, [&](std::span<const std::string> fields, const std::string& where) -> Status {
        TESSERA_RETURN_IF_ERROR(labels.Add(fields.last(1), where));
        const std::string text =
            FillIn(keys.cloze_pattern, fields[0], pairs ? fields[1] : std::string());
        TESSERA_ASSIGN_OR_RETURN(std::vector<int64_t> context,
                                 models::EncodePrompt(*tokenizer, input.model, text));
        if (std::ssize(context) > room) {
          return InvalidArgument(where, ": ", context.size(), " tokens, and seq_len leaves ", room,
                                 " beside the labels' words");
        }
        rows.contexts.push_back(std::move(context));
        return OkStatus();
      }));
  if (rows.contexts.empty()) return InvalidArgument(path, ": no records there");
  rows.labels = std::move(labels).Finish();
  if (rows.labels.kind == data::LabelKind::kNumber) {
    return InvalidArgument(path, ": the labels of a cloze are names, not scores");
  }
  return rows;
}

StatusOr<std::shared_ptr<ClozeDataset>> MakeDataset(
    Rows rows, const TextFormatPtr& format, const std::vector<std::string>& names,
    const std::vector<std::vector<int64_t>>& candidates) {
  if (rows.labels.kind == data::LabelKind::kNames) {
    TESSERA_RETURN_IF_ERROR(data::UseNames(names, &rows.labels));
  }
  auto data = std::make_shared<ClozeDataset>(format, candidates);
  for (std::vector<int64_t>& context : rows.contexts) data->Add(std::move(context));
  data->set_labels(std::move(rows.labels.values));
  return data;
}

StatusOr<TaskData> OpenCloze(const TaskInput& input) {
  const RunConfig& config = input.config;
  TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const tokenizer, input.NeedTokenizer());
  const TextFormatPtr format = input.shape.text_format();
  TESSERA_ASSIGN_OR_RETURN(const auto keys, config.Part<ClozeOptions>());
  TESSERA_ASSIGN_OR_RETURN(const std::string source, input.OneSource());
  TaskData task;
  task.seq_len = input.SeqLen(0);
  TESSERA_ASSIGN_OR_RETURN(Rows rows, ReadRows(input, source, task.seq_len));
  task.objective.labelled = rows.labels.kind == data::LabelKind::kNames;
  std::vector<std::string> names = rows.labels.names;
  if (input.model.contains("id2label")) {
    const std::vector<std::string> known = ModelLabels(input.model, names);
    if (!known.empty()) names = known;
  }
  if (names.empty()) {
    return InvalidArgument(source, ": has no labels, and the model knows none (id2label)");
  }
  models::SetLabels(names, &*task.model_changes);
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> words, WordsOf(names, keys.label_words));
  std::vector<std::vector<int64_t>> candidates;
  int64_t behind = 0;  // tokens that the candidates take
  for (const std::string& word : words) {
    const std::vector<int32_t> ids = tokenizer->Encode(word);
    if (ids.empty()) return InvalidArgument("label_words: '", word, "' has no token");
    candidates.emplace_back(ids.begin(), ids.end());
    behind += std::ssize(ids);
  }
  const int64_t room = task.seq_len - behind;
  for (size_t i = 0; i < rows.contexts.size(); ++i) {
    if (std::ssize(rows.contexts[i]) <= room) continue;
    return InvalidArgument(source, ": row ", i + 1, " has ", rows.contexts[i].size(),
                           " tokens, and seq_len leaves ", room, " beside the labels' words");
  }
  TESSERA_ASSIGN_OR_RETURN(const auto all, MakeDataset(std::move(rows), format, names, candidates));
  task.objective.metrics = SingleLabelMetrics(std::ssize(names));
  PredictNames(names, &task.objective);
  if (input.evaluation) {
    task.model_changes = JsonMember::Object();
    task.validation = all;
    return task;
  }
  TESSERA_ASSIGN_OR_RETURN(task.objective.class_weights,
                           ClassWeights(keys.class_weights, names, all->labels()));
  if (config.Validation().empty()) {
    std::tie(task.train, task.validation) =
        data::SplitDataset(all, {.fraction = config.val_fraction, .from_end = true});
    return task;
  }
  task.train = all;
  TESSERA_ASSIGN_OR_RETURN(Rows held_out, ReadRows(input, config.Validation(), room));
  TESSERA_ASSIGN_OR_RETURN(task.validation,
                           MakeDataset(std::move(held_out), format, names, candidates));
  return task;
}

const TaskKind kCloze = {.name = "cloze",
                         .help = "texts with labels, whose words fill a blank",
                         .capability = models::Capability::kChoices,
                         .fit = FitCloze,
                         .options = &ClozeOptions::Table(),
                         .open = OpenCloze,
                         .predicts = true};
const TaskRegistration registered_cloze(&kCloze);

}  // namespace
}  // namespace tessera::train
