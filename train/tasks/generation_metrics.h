// What a sequence-to-sequence model writes, judged against what it should have written.
#ifndef TESSERA_TRAIN_TASKS_GENERATION_METRICS_H_
#define TESSERA_TRAIN_TASKS_GENERATION_METRICS_H_

#include <cstdint>
#include <memory>

#include "data/dataset/dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "train/task.h"

namespace tessera::train {

struct GenerationMetricsOptions {
  int64_t max_new_tokens = 128;
  int64_t num_beams = 1;
  int64_t eos_id = 0;
  int64_t samples = 3;  // texts that are shown after an evaluation
};

// bleu: the corpus' BLEU (data/text_metrics/bleu.h) of generated texts against the decoded labels.
// The tokenizer must outlive it; `shown` is where samples come from.
std::shared_ptr<const EvaluationMetrics> GenerationMetrics(
    const data::Tokenizer& tokenizer, std::shared_ptr<const data::Dataset> shown,
    const GenerationMetricsOptions& options);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TASKS_GENERATION_METRICS_H_
