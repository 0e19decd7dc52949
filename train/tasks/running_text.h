// Running text as tokens, and its parts: what the language-modelling tasks share.
//
//   TESSERA_ASSIGN_OR_RETURN(const TextParts text, OpenRunningText(input));
//   PackedDataset::Create(text.train.tokens, {.part = text.train.part, ...});
#ifndef TESSERA_TRAIN_TASKS_RUNNING_TEXT_H_
#define TESSERA_TRAIN_TASKS_RUNNING_TEXT_H_

#include <memory>

#include "core/status.h"
#include "data/dataset/indexed_dataset.h"
#include "data/dataset/packed_dataset.h"
#include "train/task.h"

namespace tessera::train {

// A part of a stream of tokens; `tokens` is null where there is none.
struct TextPart {
  std::shared_ptr<const data::IndexedDataset> tokens;
  data::DataPart part = data::DataPart::kAll;
  double validation_fraction = 0;
};

struct TextParts {
  TextPart train;       // none in an evaluation
  TextPart validation;  // the end of the training text, or `val_data`
};

// Windows of `seq_len` tokens over a part; null where there is none.
absl::StatusOr<std::shared_ptr<const data::TokenDataset>> Windows(const TextPart& text,
                                                                  int64_t seq_len,
                                                                  const TaskInput& input);

// Opens what is tokenised already, and tokenises text into the task's cache.
absl::StatusOr<TextParts> OpenRunningText(const TaskInput& input);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TASKS_RUNNING_TEXT_H_
