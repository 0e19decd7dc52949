// SPDX-License-Identifier: Apache-2.0
// Who sees whom in GLM and ChatGLM: tokens of a prefix see one another, those behind it see the
// prefix and what came before them.
//
//   ResolveMask(&in);                                   // once, where a model begins
//   const nn::AttentionMasks masks = MasksOf(&in);      // in every layer
//
// Forms of `attention_mask`: [B] lengths of the prefix; [B, T], where every token sees the tokens
// that are not 0; [B or 1, 1, T, T], where query i sees the keys j that are not 0 at [i, j]. None:
// a prefix of length 0, hence a causal model.
#ifndef TESSERA_MODELS_GLM_PREFIX_MASK_H_
#define TESSERA_MODELS_GLM_PREFIX_MASK_H_

#include <string>

#include "base/status.h"
#include "models/model.h"
#include "nn/attention.h"

namespace tessera::models {

// Writes `prefix_length` [B] int32 and leaves of `attention_mask` what a prefix does not say. A
// bundle that has `prefix_length` already stays as it is, with `attention_mask` as key padding.
void ResolveMask(Bundle* in);

// What a layer with such masks takes and gives.
BlockKeys PrefixBlockKeys();

// What a resolved bundle asks of a layer. The bias of a mask [B, 1, T, T] is computed once a stage
// (`local.attention_bias`).
nn::AttentionMasks MasksOf(Bundle* in);

// CutTexts (models/language_model.h) of a resolved bundle.
Bundle CutPrefixTexts(Bundle rows, const Tensor& targets, const nn::BuildContext& build,
                      nn::ForwardContext* context);

// Whether the mask and the positions of a bundle from outside fit `input_ids` [B, T], which is
// checked already. Positions are [B, 2, T] (or [B, T] where `one_coordinate` may be given), each in
// [0, rows); one row of them stands for all.
struct PositionLimits {
  int64_t rows = 0;
  bool one_coordinate = false;
  bool two_coordinates = true;
};
Status CheckMaskAndPositions(const std::string& source, const PositionLimits& limits,
                             Bundle* inputs);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GLM_PREFIX_MASK_H_
