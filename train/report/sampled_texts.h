// SPDX-License-Identifier: Apache-2.0
// Texts that a model writes at every evaluation, so that one sees what it has learnt.
//
//   TESSERA_RETURN_IF_ERROR(ContinueAtEvaluations({"Once upon a time"}, 40, *tokenizer, *shape,
//                                                 folder, &data.objective));
#ifndef TESSERA_TRAIN_REPORT_SAMPLED_TEXTS_H_
#define TESSERA_TRAIN_REPORT_SAMPLED_TEXTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/tokenizer/tokenizer.h"
#include "models/model.h"
#include "train/task.h"

namespace tessera::train {

// Adds each prompt with its likeliest continuation, of at most `tokens`, to what the objective
// shows (Objective::samples). Evaluations compare: of the generation_config.json in `folder`, the
// tokens that begin and end a text count alone. `shape` is the model, perhaps without its weights.
// Refuses a model that does not generate, and prompts without room. The tokenizer must outlive the
// objective.
Status ContinueAtEvaluations(const std::vector<std::string>& prompts, int64_t tokens,
                             const data::Tokenizer& tokenizer, const models::Model& shape,
                             const std::string& folder, Objective* objective);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_REPORT_SAMPLED_TEXTS_H_
