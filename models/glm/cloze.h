// SPDX-License-Identifier: Apache-2.0
// Classification as a cloze (Schick & Schuetze 2021; Du et al. 2022, section 2.4): the label is the
// candidate that most likely fills the blank of a sentence, as in SuperGLUE.
//
//   std::vector<ClozeRow> rows = {{context_with_mask, {{yes}, {no, way}}}};
//   TESSERA_ASSIGN_OR_RETURN(Bundle in, ClozeInputs(config, rows, device));
//   Tensor scores_BN = model->Run(in, {}).at(keys::kLogits);       // the row's label: its greatest
//
// A candidate's score is the sum of the log-probabilities of its tokens. All candidates of a row
// stand behind its context in one pass: each begins with <|startofpiece|> and sees the context and
// itself.
#ifndef TESSERA_MODELS_GLM_CLOZE_H_
#define TESSERA_MODELS_GLM_CLOZE_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "models/glm/config.h"
#include "models/model.h"
#include "ops/cross_entropy/cross_entropy.h"

namespace tessera::models {

// `input_ids`, `position_ids` [B, 2, T], `attention_mask` [B, 1, T, T], `choice_ids` and
// `choice_indices` [B, N, L] (-100 where a row has fewer candidates or tokens). InvalidArgument for
// a row without blank or candidates, an empty candidate, a configuration without sop_token_id or
// block positions.
StatusOr<Bundle> ClozeInputs(const GlmConfig& config, const std::vector<ClozeRow>& rows,
                             const Device& device = Device::Cpu());

// [B, N] scores, -inf where choice_ids has -100 only. logits [B, T, V] (this rank's columns);
// choice_ids [B, N, L]: candidates' tokens; choice_indices [B, N, L]: where their logits stand.
// `options` describe the vocabulary's share, see nn::VocabParallelHead::LossOptions.
Tensor ChoiceScores(const Tensor& logits, const Tensor& choice_ids, const Tensor& choice_indices,
                    CrossEntropyOptions options);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GLM_CLOZE_H_
