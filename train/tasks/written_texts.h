// SPDX-License-Identifier: Apache-2.0
// What a model writes for a source or a prompt: shown, predicted, and judged against what it should
// have written.
#ifndef TESSERA_TRAIN_TASKS_WRITTEN_TEXTS_H_
#define TESSERA_TRAIN_TASKS_WRITTEN_TEXTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "data/dataset/dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "train/task.h"

namespace tessera::train {

struct WrittenTextsOptions {
  int64_t max_new_tokens = 128;
  int64_t num_beams = 1;
  std::vector<int64_t> eos_ids = {};  // that end a text; none: the model's
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
// The tokenizer must outlive it.
void WriteTexts(const data::Tokenizer& tokenizer, const WrittenTextsOptions& options,
                Objective* objective);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TASKS_WRITTEN_TEXTS_H_
