// SPDX-License-Identifier: Apache-2.0
// What models of several families take, pass on and return, beside core/batch_keys.h. B rows,
// T tokens, C width, V vocabulary, L labels.
#ifndef TESSERA_MODELS_MODEL_KEYS_H_
#define TESSERA_MODELS_MODEL_KEYS_H_

#include "core/batch_keys.h"
#include "core/bundle.h"

namespace tessera::keys {

// Passed on.
inline constexpr TensorKey kHidden{"hidden", KeyElements::kFloating, "[B, T, C]",
                                   "hidden states, under sequence parallelism a share of T"};
// Of decoding.
inline constexpr TensorKey kDecoderInputIds{"decoder_input_ids", KeyElements::kInt64, "[B, T]",
                                            "the tokens of a decoder beside an encoder"};
inline constexpr TensorKey kPrefixLength{"prefix_length", KeyElements::kInt32, "[B]",
                                         "so many tokens at the front see one another"};
inline constexpr TensorKey kLogitPositions{"logit_positions", KeyElements::kInt64, "[B, 1]",
                                           "the tokens whose logits are wanted"};
// Returned.
inline constexpr TensorKey kLoss{"loss", KeyElements::kFloating, "[]", "of labels or targets"};
inline constexpr TensorKey kLogits{"logits", KeyElements::kFloating, "[B, T, V] or [B, L]",
                                   "of words or labels"};
inline constexpr TensorKey kLastHiddenState{"last_hidden_state", KeyElements::kFloating,
                                            "[B, T, C]", "what the head reads"};
inline constexpr TensorKey kPoolerOutput{"pooler_output", KeyElements::kFloating, "[B, C]",
                                         "the first token behind the pooler"};

}  // namespace tessera::keys

#endif  // TESSERA_MODELS_MODEL_KEYS_H_
