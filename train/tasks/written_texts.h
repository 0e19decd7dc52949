// SPDX-License-Identifier: Apache-2.0
// What a model writes for a source or a prompt: shown, predicted, and judged against what it should
// have written.
#ifndef TESSERA_TRAIN_TASKS_WRITTEN_TEXTS_H_
#define TESSERA_TRAIN_TASKS_WRITTEN_TEXTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/dataset/dataset.h"
#include "train/task.h"

namespace tessera::train {

struct WrittenTextsOptions {
  int64_t max_new_tokens = 128;
  std::optional<int64_t> num_beams = {};  // absent: the folder's
  std::vector<int64_t> eos_ids = {};      // that end a text, too; none: the tokenizer's
  // Whether a row is a prompt with its answer, whose tokens alone have labels; else `input_ids` is
  // a source, and `labels` its target. Where a row has `targets` instead, the answer is the last
  // run of them, and the prompt what is before it.
  bool answers_in_rows = false;
  // Whether evaluations write, and have the scores of train/tasks/text_scores.h against the decoded
  // labels; and how many of the texts are shown then, of `shown`.
  bool judged = false;
  int64_t samples = 3;
  std::shared_ptr<const data::Dataset> shown = nullptr;
};

// Gives the objective `write` and `predict`, and, where texts are judged, `metrics` and `samples`.
// Texts are written as `tessera generate` writes them: the generation_config.json of the model's
// folder says how, where the options do not. The tokenizer must outlive the objective.
Status WriteTexts(const TaskInput& input, const WrittenTextsOptions& options, TaskData* data);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TASKS_WRITTEN_TEXTS_H_
