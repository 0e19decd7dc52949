// What a model writes for a source or a prompt, judged against what it should have written.
#ifndef TESSERA_TRAIN_TASKS_GENERATION_METRICS_H_
#define TESSERA_TRAIN_TASKS_GENERATION_METRICS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "data/dataset/dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "train/task.h"

namespace tessera::train {

struct GenerationMetricsOptions {
  int64_t max_new_tokens = 128;
  int64_t num_beams = 1;
  std::vector<int64_t> eos_ids = {};  // that end a text; none: the model's
  // Whether a row is a prompt with its answer, whose tokens alone have labels; else `input_ids` is
  // a source, and `labels` its target.
  bool answers_in_rows = false;
  int64_t samples = 3;  // texts that are shown after an evaluation
};

// The scores of train/tasks/text_scores.h of generated texts against the decoded labels.
// The tokenizer must outlive it; `shown` is where samples come from.
std::shared_ptr<const EvaluationMetrics> GenerationMetrics(
    const data::Tokenizer& tokenizer, std::shared_ptr<const data::Dataset> shown,
    const GenerationMetricsOptions& options);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TASKS_GENERATION_METRICS_H_
