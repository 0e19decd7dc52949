// SPDX-License-Identifier: Apache-2.0
#include "train/task.h"

#include <algorithm>

#include "base/error.h"
#include "base/nearest_name.h"
#include "models/family.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"

namespace tessera::train {
namespace {

std::vector<const TaskKind*>& MutableTasks() {
  static auto* tasks = new std::vector<const TaskKind*>;
  return *tasks;
}

bool Serves(const TaskKind& task, const models::Family& family) {
  return family.With(task.capability) != nullptr;
}

std::string NamesFor(const models::Family& family) {
  std::string names;
  for (const TaskKind* task : Tasks()) {
    if (Serves(*task, family)) names += (names.empty() ? "" : ", ") + task->name;
  }
  return names;
}

}  // namespace

double Objective::TargetsOf(const data::Batch& batch) const {
  if (!class_weights.defined() || batch.targets == 0) return static_cast<double>(batch.targets);
  const std::vector<float> weights = class_weights.ToVector<float>();
  double sum = 0;
  for (const int64_t label : batch.at(keys::kLabels).ToVector<int64_t>()) {
    if (label != data::kIgnoreLabel) sum += weights.at(static_cast<size_t>(label));
  }
  return sum;
}

TaskRegistration::TaskRegistration(const TaskKind* task) {
  std::vector<const TaskKind*>& tasks = MutableTasks();
  tasks.push_back(task);
  if (task->options != nullptr) OptionPartRegistration({"task", task->name, task->options});
  std::sort(tasks.begin(), tasks.end(),
            [](const TaskKind* a, const TaskKind* b) { return a->name < b->name; });
}

const std::vector<const TaskKind*>& Tasks() {
  const std::vector<const TaskKind*>& tasks = MutableTasks();
  const auto twice =
      std::adjacent_find(tasks.begin(), tasks.end(),
                         [](const TaskKind* a, const TaskKind* b) { return a->name == b->name; });
  TESSERA_CHECK(twice == tasks.end(), "tasks", "two are named '", (*twice)->name, "'");
  return tasks;
}

StatusOr<const TaskKind*> FindTask(const RunConfig& config, const models::Family& family,
                                   const nlohmann::json& model, bool prediction) {
  const std::string& type = family.model_type;
  if (config.task.empty()) {
    const models::Architecture* const now = family.ArchitectureOf(model);
    const TaskKind* best = nullptr;
    for (const TaskKind* task : Tasks()) {
      if (!Serves(*task, family) || (prediction && !task->predicts)) continue;
      const int fit = task->fit(config, now);
      if (fit > (best == nullptr ? 0 : best->fit(config, now))) best = task;
    }
    if (best != nullptr) return best;
    return InvalidArgument("there is no task ", prediction ? "that predicts " : "", "for a '", type,
                           "' model", prediction ? "; `tessera generate` writes texts" : "");
  }
  std::vector<std::string> names;
  for (const TaskKind* task : Tasks()) {
    names.push_back(task->name);
    if (task->name != config.task) continue;
    if (prediction && !task->predicts) {
      return InvalidArgument("task '", config.task,
                             "' predicts nothing; `tessera generate` writes texts");
    }
    if (Serves(*task, family)) return task;
    return InvalidArgument("task '", config.task, "' is not for a '", type,
                           "' model, which has: ", NamesFor(family));
  }
  return InvalidArgument("unknown task '", config.task, "'", DidYouMean(config.task, names),
                         "; a '", type, "' model has: ", NamesFor(family));
}

int64_t TaskInput::SeqLen(int64_t otherwise) const {
  if (config.seq_len) return *config.seq_len;
  return shape.max_positions() > 0 ? shape.positions_left() : otherwise;
}

StatusOr<std::string> TaskInput::OneSource() const {
  if (sources.size() == 1) return sources[0].path;
  return InvalidArgument("data lists ", sources.size(),
                         " sources; a blend is for running text, not for the task ", config.task);
}

StatusOr<const data::Tokenizer*> TaskInput::NeedTokenizer() const {
  if (tokenizer != nullptr) return tokenizer;
  return InvalidArgument(sources[0].path, ": text needs a tokenizer; give --tokenizer");
}

StatusOr<int64_t> TaskInput::NeedToken(std::optional<int32_t> id, const std::string& what) const {
  if (id) return *id;
  return InvalidArgument("the tokenizer has no ", what, " token, which the task needs");
}

StatusOr<int64_t> TaskInput::NeedToken(const models::TextToken& token) const {
  TESSERA_ASSIGN_OR_RETURN(const data::Tokenizer* const known, NeedTokenizer());
  return NeedToken(token.find(*known), token.name);
}

}  // namespace tessera::train
