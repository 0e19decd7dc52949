// SPDX-License-Identifier: Apache-2.0
// What language models' heads share: targets from labels, logits, and the loss.
//
//   Tensor targets = ShiftedTargets(in);
//   return LanguageModelOutputs(*lm_head_, h_BTC, targets, in, options);
#ifndef TESSERA_MODELS_LANGUAGE_MODEL_H_
#define TESSERA_MODELS_LANGUAGE_MODEL_H_

#include "models/model.h"
#include "nn/embedding.h"

namespace tessera::models {

// What a block does that ends in LanguageModelOutputs.
BlockKeys LanguageModelKeys();

// `targets`, or `labels` [B, T] shifted left by one (the last token has no target); undefined where
// the bundle has neither.
Tensor ShiftedTargets(const Bundle& in);
// `targets`, or `labels` as they are.
Tensor AlignedTargets(const Bundle& in);

// Model::CutSequences of a model of texts with these `targets` (undefined: there are none). The
// result has this rank's tokens, positions and targets. Masks and documents stay whole, since
// attention reads the keys of all ranks.
Bundle CutTexts(Bundle rows, const Tensor& targets, const nn::BuildContext& build,
                nn::ForwardContext* context);

// What a masked language model's head computes: hidden states, and what they are to guess.
struct MaskedTokens {
  Tensor hidden;
  Tensor targets;
};
// h [B, T, C] and targets [B, T] (or undefined) as they are. Where only the loss is wanted, and
// this rank has whole sequences on the CPU, the tokens that are to be guessed alone: [M, C] and
// [M]. (On an accelerator their number would have to be read back.)
MaskedTokens MaskedTokensOf(const Tensor& h, const Tensor& targets, const nn::BuildContext& build,
                            const RunOptions& options);

// While decoding, h [B, T, C] at the positions [B, P] of `logit_positions` alone, and `context` of
// a sequence of P; h itself otherwise. Ranks that hold shares of the sequence hold shares of it
// after.
Tensor AtLogitPositions(const Tensor& h, const Bundle& in, const nn::BuildContext& build,
                        nn::ForwardContext* context);

// `logits` [B, T, V] and `last_hidden_state` [B, T, C] (whole) of h [B, T, C], unless only the loss
// is wanted, and `loss` where `targets` [B, T] is defined.
Bundle LanguageModelOutputs(nn::VocabParallelHead& head, const Tensor& h, const Tensor& targets,
                            const Bundle& in, const RunOptions& options);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_LANGUAGE_MODEL_H_
