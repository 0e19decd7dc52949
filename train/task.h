// SPDX-License-Identifier: Apache-2.0
// What a run teaches a model: the data it reads, what these ask of the model, and what an
// evaluation measures beside the loss.
//
//   TESSERA_ASSIGN_OR_RETURN(const TaskKind* task, FindTask(config, model_json));
//   TESSERA_ASSIGN_OR_RETURN(TaskData data, task->open({.config = config, ...}));
//
// A task is a file in train/tasks/ that registers itself. Without the key `task` a run has the one
// that goes best with the model's architecture and the data.
#ifndef TESSERA_TRAIN_TASK_H_
#define TESSERA_TRAIN_TASK_H_

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json_member.h"
#include "base/options_fwd.h"
#include "base/status.h"
#include "core/tensor.h"
#include "data/dataset/dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "models/generation/lockstep.h"
#include "models/model.h"
#include "nlohmann/json_fwd.hpp"
#include "train/config/run_config.h"
#include "train/engine/step_parts.h"

namespace tessera::data {
class PreferenceDataset;  // data/preference/preference_dataset.h
}  // namespace tessera::data

namespace tessera::models {
enum class Capability;
struct Architecture;
struct Family;
}  // namespace tessera::models

namespace tessera::train {

// What the model made of a batch.
struct BatchResult {
  models::Bundle outputs;          // of its forward pass
  std::vector<std::string> texts;  // what it wrote for each row (Objective::write)
};

// What an evaluation measures beside the loss: counts of each batch, which are added over batches
// and data-parallel ranks, and numbers made of the sums. Immutable. Where sums do not suffice (a
// correlation of ranks), `Count` returns further numbers behind its `num_counts()` counts, and
// `Finish` gets those of all batches, in their order, behind the sums.
class EvaluationMetrics {
 public:
  // What it reads of a BatchResult: `logits` among the outputs, the texts, or what the loss has
  // counted (`loss_counts` among the outputs). Of the last, training reports them too.
  enum class Reads { kLogits, kTexts, kLossCounts };

  virtual ~EvaluationMetrics() = default;

  virtual size_t num_counts() const = 0;
  virtual Reads reads() const { return Reads::kLogits; }
  virtual StatusOr<std::vector<double>> Count(const data::Batch& batch,
                                              const BatchResult& result) const = 0;
  // By name ("accuracy"), in the order in which they are printed.
  virtual nlohmann::ordered_json Finish(const std::vector<double>& sums) const = 0;
};

// A row's prediction: `prediction` (a label's name, a number or a text), `probabilities` of the
// labels where there are any, `label` (what the data say) where they say it. Who makes or looks at
// rows includes nlohmann/json.hpp.
using PredictedRow = nlohmann::ordered_json;

// What the loop takes from a task beside its data.
struct Objective {
  std::shared_ptr<const EvaluationMetrics> metrics;  // null: the loss alone
  // Whether batches have labels; data to predict need not.
  bool labelled = true;
  // A text for each row of a batch, of a task that writes. All ranks that share a copy of the model
  // call it with the same batch. Where ranks hold parameters together, all call it at the same
  // time, and go in step by `largest_over_ranks`; else that is nullptr.
  std::function<StatusOr<std::vector<std::string>>(
      models::Model& model, const data::Batch& batch,
      const models::LargestOverRanks& largest_over_ranks)>
      write = nullptr;
  // What the rows of a batch are predicted to be; nullptr: the task predicts nothing.
  std::function<std::vector<PredictedRow>(const data::Batch& batch, const BatchResult& result)>
      predict = nullptr;
  // Lines that show what the model does (a few translations), after an evaluation; nullptr: none.
  std::function<std::vector<std::string>(models::Model& model)> samples = nullptr;
  // Of a classifier with single labels: [labels] float32 (RunOptions::class_weights). A batch then
  // counts for the sum of its labels' weights, as a weighted mean is defined.
  Tensor class_weights = {};

  // The loss of a batch, where it is not the sum of its tokens', and what that alone reads of it
  // (train/engine/step_parts.h).
  StepPart<CountedLoss(const Tensor& token_losses, const models::Bundle& batch)> loss_of_tokens =
      {};
  std::vector<TensorKey> loss_reads = {};

  // What the sum of a batch's losses is divided by: its targets, each with the weight of its class.
  double TargetsOf(const data::Batch& batch) const;
};

struct TaskData {
  // In an evaluation (TaskInput::evaluation) everything is in `validation`, and `train` is null.
  std::shared_ptr<const data::Dataset> train;
  std::shared_ptr<const data::Dataset> validation;  // null: no evaluation
  Objective objective;
  // What the data ask of the model: keys that replace those of its configuration.
  JsonMember model_changes = JsonMember::Object();
  // Whether the head is made for this data: one that a folder's weights lack is initialised, and
  // one of another shape where ignore_mismatched_sizes says so.
  bool replaces_head = false;
  // Whether every probability of dropout is 0, whatever the model's folder says.
  bool disables_dropout = false;
  // Files that belong into the trained model's folder, by name.
  std::vector<std::pair<std::string, std::string>> files = {};
  // What the data have that one should know, a line each.
  std::vector<std::string> warnings = {};
  // Tokens of a row, or the most that one may have; 0: samples are no text.
  int64_t seq_len = 0;
  // Pairs that a reference model judges before training, and the folder it is in; empty: the run's
  // model as it begins, without its adapter (train/preferences/reference_pass.h).
  std::vector<std::shared_ptr<data::PreferenceDataset>> preferences = {};
  std::string reference_model = {};
};

// What a task may need to open its data.
struct TaskInput {
  const RunConfig& config;
  const std::vector<DataSource>& sources;  // what `config.data` lists
  // What the model is built from, the tokenizer's vocabulary included, and where messages say it
  // comes from.
  const nlohmann::json& model;
  // What that family declares, and the model before the task's changes, on the meta device.
  const models::Family& family;
  const models::Model& shape;
  const data::Tokenizer* tokenizer = nullptr;  // null: none
  std::string cache = "";                      // directory for what is made of the data
  bool evaluation = false;                     // a look at the data, nothing is trained
  bool prediction = false;                     // an evaluation whose data need no labels

  // The path of the one source, or a status that says that this task blends none.
  StatusOr<std::string> OneSource() const;
  // Tokens of a row: config.seq_len, else as many as the model has positions, else `otherwise`.
  int64_t SeqLen(int64_t otherwise) const;
  // The tokenizer, or a status that asks for one.
  StatusOr<const data::Tokenizer*> NeedTokenizer() const;
  // A special token's id, or a status that says what the tokenizer lacks.
  StatusOr<int64_t> NeedToken(std::optional<int32_t> id, const std::string& what) const;
  StatusOr<int64_t> NeedToken(const models::TextToken& token) const;
};

// Where the text for a tokenizer lies.
struct TokenizerText {
  std::vector<std::string> paths;
  std::string json_key = "text";
};

struct TaskKind {
  std::string name;  // "masked_lm"
  std::string help;  // one line
  // What it asks of a model. It is for families that have an architecture with that, and training
  // makes the model one of those.
  models::Capability capability;
  // How well the task goes with the data that is given and with the model's architecture as it
  // stands, which is nullptr where the family does not list it: 1 or more, or 0 for one that goes
  // with no data unless it is named. A run that names no task has the one with the greatest number.
  int (*fit)(const RunConfig& config, const models::Architecture* now);
  // Its own keys of a run's configuration (`config.Part<Options>()`); set where a task without
  // them runs they are refused.
  const OptionTable* options = nullptr;
  // Whether its data are text that goes through a tokenizer.
  bool needs_tokenizer = true;
  StatusOr<TaskData> (*open)(const TaskInput& input);
  bool predicts = false;  // whether it gives Objective::predict
  // The text that a tokenizer made for the data is made from; without it, the sources.
  TokenizerText (*tokenizer_text)(const RunConfig& config) = nullptr;
};

// Makes a task known where it is linked in.
struct TaskRegistration {
  explicit TaskRegistration(const TaskKind* task);
};

// By name. Throws Error where two that are linked in have one name.
const std::vector<const TaskKind*>& Tasks();
// The one that `config.task` names, or the one that fits best; for predictions, of those that
// predict. Failures name what is known, and what the model is for.
StatusOr<const TaskKind*> FindTask(const RunConfig& config, const models::Family& family,
                                   const nlohmann::json& model, bool prediction = false);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TASK_H_
