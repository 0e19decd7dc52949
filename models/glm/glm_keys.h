// SPDX-License-Identifier: Apache-2.0
// GLM's own keys. B rows, T tokens, N candidates, L tokens of a candidate, V vocabulary.
#ifndef TESSERA_MODELS_GLM_GLM_KEYS_H_
#define TESSERA_MODELS_GLM_GLM_KEYS_H_

#include "models/model_keys.h"

namespace tessera::keys {

inline constexpr TensorKey kChoiceIds{"choice_ids", KeyElements::kInt64, "[B, N, L]",
                                      "the candidates' tokens, -100 where a row has fewer"};
inline constexpr TensorKey kChoiceIndices{"choice_indices", KeyElements::kInt64, "[B, N, L]",
                                          "where the logits of those tokens stand"};
inline constexpr TensorKey kLmLogits{"lm_logits", KeyElements::kFloating, "[B, T, V]",
                                     "of words, beside scores of candidates"};
inline constexpr TensorKey kAttentionBias{"local.attention_bias", KeyElements::kFloating,
                                          "[B, 1, T, T]", "-inf where a mask hides a key"};

}  // namespace tessera::keys

#endif  // TESSERA_MODELS_GLM_GLM_KEYS_H_
